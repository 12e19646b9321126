"""Moonshine: English from sound as it is, without marks of time, so that windows are cut where it is quiet.

The modules are transformers' own. A window takes as long as what is said in it, up to 30 seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoFeatureExtractor, GenerationConfig, MoonshineForConditionalGeneration

from engine.api.errors import ModelLoadError
from engine.messages import SpeechOptions, SpokenSegment
from engine.models.speech.loading import load_quietly, read_model
from engine.models.speech.model import RATE, Steps, chosen_token

LONGEST, SHORTEST = 30 * RATE, 15 * RATE
"""The samples of a window that is cut off a longer sound."""
QUIET = RATE // 10
"""The samples over which loudness is judged."""
TOKENS_PER_SECOND = 6.5
"""More than anybody says; beyond it the model repeats itself (https://github.com/usefulsensors/moonshine)."""
LANGUAGE = "en"
LEAST_TOKENS = 8


class Moonshine:
    """A loaded model of the family."""

    def __init__(self, model: Any, extractor: Any, generation: Any, path: Path) -> None:
        """Raises ModelLoadError for a description that is not served."""
        self._model = model
        self._device, self._dtype = model.device, model.dtype
        if extractor.sampling_rate != RATE:
            raise ModelLoadError(f"{path}: {RATE} samples a second are served, got {extractor.sampling_rate}")
        self._normalizes = bool(extractor.do_normalize)
        self._start: int = generation.decoder_start_token_id
        ends = generation.eos_token_id
        self._ends = set(ends if isinstance(ends, list) else [ends])
        self.vocab_size: int = model.config.vocab_size
        self.max_tokens: int = model.config.max_position_embeddings

    @classmethod
    def load(cls, path: Path, device: torch.device, dtype: torch.dtype) -> Moonshine:
        """Load a folder. Raises ModelLoadError."""
        with load_quietly(path):
            extractor = AutoFeatureExtractor.from_pretrained(path)
            generation = GenerationConfig.from_pretrained(path)
            model = read_model(MoonshineForConditionalGeneration, path, dtype)
        return cls(model.eval().requires_grad_(False).to(device), extractor, generation, path)

    def forms(self) -> dict[str, str]:
        weights = str(self._dtype).removeprefix("torch.")
        return {"backend": "transformers", "weights": weights, "attention": "torch, windows cut where it is quiet"}

    def transcribe(self, samples: torch.Tensor, prompt_ids: list[int], options: SpeechOptions) -> Steps:
        """Write down window after window; each is one segment."""
        if self._normalizes:
            samples = (samples - samples.mean()) / (samples.var(unbiased=False) + 1e-7).sqrt()
        draws = torch.Generator(self._device).manual_seed(options.seed)
        for start, stop in windows(samples):
            states = self._encode(samples[start:stop])
            yield []
            token_ids: list[int] = []
            logprobs: list[float] = []
            cache, last = None, self._start
            most = min(self.max_tokens - 1, LEAST_TOKENS + int((stop - start) / RATE * TOKENS_PER_SECOND))
            while len(token_ids) < most:
                scores, cache = self._logits(states, last, cache)
                last = chosen_token(scores, options.temperature, draws)
                logprob = float(scores.log_softmax(-1)[last])
                logprobs.append(logprob)
                if last in self._ends:
                    break
                token_ids.append(last)
                yield []
            if token_ids:
                mean = sum(logprobs) / len(logprobs)
                yield [
                    SpokenSegment(
                        start_s=start / RATE,
                        end_s=stop / RATE,
                        token_ids=token_ids,
                        logprobs=logprobs[: len(token_ids)],
                        mean_logprob=mean,
                        temperature=options.temperature,
                        seek=100 * start // RATE,
                        language=LANGUAGE,
                    )
                ]
        return LANGUAGE

    @torch.inference_mode()
    def _encode(self, samples: torch.Tensor) -> Any:
        return self._model.get_encoder()(samples[None].to(self._device, self._dtype))

    @torch.inference_mode()
    def _logits(self, states: Any, token_id: int, cache: Any) -> tuple[torch.Tensor, Any]:
        result = self._model(
            encoder_outputs=states,
            decoder_input_ids=torch.tensor([[token_id]], device=self._device),
            past_key_values=cache,
            use_cache=True,
        )
        return result.logits[0, -1].float(), result.past_key_values


def windows(samples: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Yield the windows of a sound, one behind the other: what is longer than LONGEST is cut where it is quietest."""
    start = 0
    while len(samples) - start > LONGEST:
        part = samples[start + SHORTEST : start + LONGEST - QUIET]  # the encoder refuses a rest below 895
        loudness = part[: len(part) // QUIET * QUIET].view(-1, QUIET).square().mean(1)
        stop = start + SHORTEST + int(loudness.argmin()) * QUIET + QUIET // 2
        yield start, stop
        start = stop
    yield start, len(samples)
