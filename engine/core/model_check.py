"""`python -m engine.core.model_check CONFIG`: load a model as the core does; say how each part is computed.

CONFIG is what `engine.core.link.pack_config` writes. Prints a line for each fact, times of steps too, and exits with 0;
or prints the problem and exits with 1. `manage.py model check` runs it in a process of its own, as a model's files are
not trusted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import median
from time import perf_counter

import torch

from engine.api.errors import ModelLoadError
from engine.config import EngineConfig
from engine.core.build import speech_dtype
from engine.core.link import unpack_config
from engine.execution.batch import dummy_sequence
from engine.execution.device import check_device, refused_if_too_large
from engine.execution.encoder_runner import EncoderRunner
from engine.execution.runner import ModelRunner
from engine.execution.spill_file import check_spill
from engine.loading.inspection import describe_model
from engine.loading.loader import load_model
from engine.messages import SpeechOptions
from engine.model_kind import read_purpose
from engine.sequence import Chunk, StepPlan

PROBE_S = 10
CONTEXT, PROMPT, NUM_STEPS = 128, 512, 9
"""Tokens behind which steps are timed, tokens of the timed prompt, and steps of each kind."""


def model_facts(config: EngineConfig) -> Iterator[tuple[str, str]]:
    """Load the model and yield names and texts. Raises ModelLoadError."""
    yield "model", describe_model(config.model_path, config.projector)
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    check_device(config.device, config.weights, config.kv_cache, config.batch_invariant)
    check_spill(config)
    purpose = read_purpose(config.model_path, config.projector)
    if purpose.is_encoder:
        yield from _encoder_facts(config)
        return
    if purpose.speech is not None:
        yield from _speech_facts(config)
        return
    started = perf_counter()
    with refused_if_too_large():
        loaded = load_model(
            config.model_path,
            device=config.device,
            weights=config.weights,
            max_model_len=config.max_model_len,
            batch_invariant=config.batch_invariant,
        )
        runner = ModelRunner(loaded, config)
    yield "ready after", f"{perf_counter() - started:.1f} s"
    yield "context", f"{runner.max_model_len} of {loaded.config.max_position} tokens"
    yield from runner.forms().items()
    context, length = (min(tokens, runner.max_model_len) for tokens in (CONTEXT, PROMPT))
    timed = dict(_timed_step(runner, [(context, 1)] * wanted) for wanted in (1, min(8, config.max_num_seqs)))
    for num_rows, seconds in timed.items():
        yield f"{num_rows} at once", f"{num_rows / seconds:,.0f} tokens/s, {seconds * 1000:.1f} ms a step"
    _, seconds = _timed_step(runner, [(length, length)])
    yield "prompt", f"{length / seconds:,.0f} tokens/s"


def _speech_facts(config: EngineConfig) -> Iterator[tuple[str, str]]:
    """Load a model of speech, write down some silence, and yield names and texts. Raises ModelLoadError."""
    from engine.models.speech.model import RATE
    from engine.models.speech.registry import load_speech_model

    started = perf_counter()
    model = load_speech_model(config.model_path, torch.device(config.device), speech_dtype(config))
    yield "ready after", f"{perf_counter() - started:.1f} s"
    yield from model.forms().items()
    started = perf_counter()
    for _ in model.transcribe(torch.zeros(PROBE_S * RATE), [], SpeechOptions("en", temperature=1.0)):
        pass
    yield "a window", f"{perf_counter() - started:.1f} s for {PROBE_S} s of silence"


def _encoder_facts(config: EngineConfig) -> Iterator[tuple[str, str]]:
    """Load an encoder and yield names and texts. Raises ModelLoadError."""
    started = perf_counter()
    runner = EncoderRunner.load(config)
    yield "ready after", f"{perf_counter() - started:.1f} s"
    yield "context", f"{runner.max_model_len} tokens"
    yield from runner.forms().items()
    length, times = min(CONTEXT, runner.max_model_len), []
    texts = [dummy_sequence(number, [number] * length, []) for number in range(min(8, config.max_num_seqs))]
    for _ in range(NUM_STEPS):
        began_at = perf_counter()
        runner.results(texts)
        times.append(perf_counter() - began_at)
    yield "texts", f"{len(texts) / median(times):,.1f} a second, of {length} tokens"


def _timed_step(runner: ModelRunner, chunks: list[tuple[int, int]]) -> tuple[int, float]:
    """Return the number of sequences that the cache holds at once, and the median seconds of a step with them.

    `chunks`: length of each sequence, and how many of its tokens are new.
    """
    planned: list[Chunk] = []
    first = 0
    for number, (length, num_new) in enumerate(chunks):
        table = runner.groups.lone_table(length)
        end = first + max(table) + 1
        if end > runner.num_blocks and planned:
            break
        sequence = dummy_sequence(number, [number] * length, [first + block_id for block_id in table])
        planned.append(Chunk(sequence, length - num_new, num_new, True))
        first = end
    plan, times = StepPlan(tuple(planned)), []
    for _ in range(NUM_STEPS):
        started = perf_counter()
        runner.forward(plan).max().item()
        times.append(perf_counter() - started)
    return len(planned), median(times)


def main(packed: str) -> int:
    """Check the model and return the exit code."""
    try:
        for name, text in model_facts(unpack_config(packed.encode())):
            sys.stdout.write(f"{name}: {text}\n")
            sys.stdout.flush()
    except ModelLoadError as error:
        sys.stdout.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
