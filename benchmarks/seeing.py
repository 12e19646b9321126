"""Time prompts with an image, beside transformers and beside text streams.

    python benchmarks/seeing.py [--threads 2] [--repeats 3] [--weights auto]

A random LLaVA is made: a SigLIP tower of 12 layers for 384 pixels (576 tokens), and the text model of SmolLM2-135M. It
prints, least of the repeats: transformers' encoder and prompt (float32), the first token of ours after the pixels are
decoded and prepared, the tokens a second of a text stream alone and while images are encoded, and how many of these are
answered meanwhile. Compare only within one run.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.api import Completed, Delta, GenerationRequest, SamplingParams, StopRules
from engine.config import EngineConfig
from engine.engine import Engine
from tests.engine.seeing_folders import TEMPLATE, TEXT, encoded, image_of, seeing_tokenizer

SIDE, PATCH = 384, 16
TOWER = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
TEXT_MODEL = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
}
STREAM_TOKENS = 400


def write_model(folder: Path):
    """Write the model; return it with its processor."""
    config = transformers.LlavaConfig(
        vision_config=transformers.SiglipVisionConfig(
            **TOWER, image_size=SIDE, patch_size=PATCH, vision_use_head=False
        ),
        text_config=transformers.LlamaConfig(**{**TEXT, **TEXT_MODEL}),
        image_token_index=seeing_tokenizer(folder).convert_tokens_to_ids("<image>"),
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    images = transformers.SiglipImageProcessor(size={"height": SIDE, "width": SIDE})
    processor = transformers.LlavaProcessor(
        images,
        seeing_tokenizer(folder),
        patch_size=PATCH,
        vision_feature_select_strategy="full",
        num_additional_image_tokens=0,
        chat_template=TEMPLATE.replace("PLACE", "<image>"),
    )
    torch.manual_seed(0)
    model = transformers.LlavaForConditionalGeneration(config).float().eval()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model, processor


def seconds_of_peer(model, processor, seed: int) -> tuple[float, float]:
    """Return the seconds of transformers' tower and of the prompt behind it."""
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what is it?"}]}]
    text = processor.apply_chat_template(messages, add_generation_prompt=True)
    inputs = processor(text=[text], images=[image_of(SIDE, SIDE, seed)], return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        started = perf_counter()
        model.get_image_features(pixel_values=inputs["pixel_values"])
        encoded_at = perf_counter()
        model.generate(**inputs, max_new_tokens=1, do_sample=False, eos_token_id=10**6)
    return encoded_at - started, perf_counter() - encoded_at


class Ours:
    """The engine, with its core in a process of its own."""

    def __init__(self, folder: Path, weights: str, threads: int) -> None:
        self._events: queue.SimpleQueue = queue.SimpleQueue()
        config = EngineConfig(folder, "seeing", weights=weights, num_threads=threads, max_model_len=4096)
        self.engine = Engine(config, self._events.put)
        self.engine.start()
        self._numbers: dict[str, queue.SimpleQueue] = {}
        threading.Thread(target=self._sort, daemon=True).start()

    def _sort(self) -> None:
        while True:
            for run in self._events.get():
                for event in run.events:
                    self._numbers[run.run_id].put((perf_counter(), event.payload))

    def submit(self, name: str, content, max_tokens: int) -> queue.SimpleQueue:
        found = self._numbers[name] = queue.SimpleQueue()
        request = GenerationRequest(
            name,
            "seeing",
            ({"role": "user", "content": content},),
            arrived_at=0.0,
            sampling=SamplingParams(temperature=0.0),
            stop=StopRules(max_tokens=max_tokens, ignore_eos=True),
        )
        self.engine.submit(request)
        return found


def parts(seed: int):
    return [{"type": "image", "data": encoded(image_of(SIDE, SIDE, seed))}, {"type": "text", "text": "what is it?"}]


def first_token_s(ours: Ours, seed: int) -> float:
    """Return the seconds from a request with an image to its first token; `submit` decodes and prepares the pixels."""
    name = f"image-{seed}"
    found = ours.submit(name, parts(seed), 1)
    started = perf_counter()
    while True:
        at, payload = found.get(timeout=600)
        if isinstance(payload, Delta):
            return at - started


def stream_rate(ours: Ours, name: str) -> tuple[float, float]:
    """Return the tokens a second of a text stream, and its longest gap in seconds."""
    found, times = ours.submit(name, "tell me of the sea", STREAM_TOKENS), []
    while True:
        at, payload = found.get(timeout=600)
        if isinstance(payload, Delta):
            times += [at] * len(payload.token_ids)
        if isinstance(payload, Completed):
            break
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    return (len(times) - 1) / (times[-1] - times[0]), max(gaps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--weights", default="auto")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        model, processor = write_model(Path(name))
        ours = Ours(Path(name), options.weights, options.threads)
        peer = [seconds_of_peer(model, processor, seed) for seed in range(options.repeats)]
        firsts = [first_token_s(ours, seed) for seed in range(options.repeats)]
        whole = min(both[1] for both in peer)
        print(
            f"transformers: tower {min(both[0] for both in peer) * 1e3:.0f} ms, tower and prompt {whole * 1e3:.0f} ms"
        )
        print(f"ours: first token {min(firsts) * 1e3:.0f} ms, {whole / min(firsts):.2f} times as fast")
        alone = [stream_rate(ours, f"alone-{number}") for number in range(options.repeats)]
        beside, seen = [], []
        for number in range(options.repeats):
            is_over = threading.Event()

            def attack(is_over: threading.Event = is_over, number: int = number) -> None:
                started, seed = perf_counter(), 1000 * (number + 1)
                while not is_over.is_set():
                    first_token_s(ours, seed)
                    seed += 1
                seen.append((seed - 1000 * (number + 1)) / (perf_counter() - started))

            thread = threading.Thread(target=attack)
            thread.start()
            beside.append(stream_rate(ours, f"beside-{number}"))
            is_over.set()
            thread.join()
        for title, rates in (("alone", alone), ("beside images all the time", beside)):
            rate, gap = statistics.median(one[0] for one in rates), max(one[1] for one in rates)
            print(f"text stream {title}: {rate:.1f} tokens/s, longest gap {gap * 1e3:.0f} ms")
        print(f"images answered meanwhile: {statistics.median(seen):.2f} a second")
        ours.engine.close()


if __name__ == "__main__":
    main()
