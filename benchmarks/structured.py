"""The cost of grammars: masks against steps, and plain requests beside constrained ones.

    python benchmarks/structured.py --model PATH [--streams 8] [--tokens 96] [--rounds 3]

No HTTP; the core is a process, as when serving. Prints the time of a warm mask per row and its share of a step (target:
under 5 %), and how much slower plain streams are when half of the streams are JSON under a schema (target: under 10 %).
Compare only within one run on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.api import Delta, GenerationRequest, SamplingParams, StopRules
from engine.api.constraint import Constraint, ConstraintKind
from engine.api.request import Message
from engine.config import EngineConfig, StructuredLimits
from engine.engine import Engine, RunEvents
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.child_task import compile_constraint
from engine.structured.core_grammars import build_template

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 40},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
        },
    },
    "required": ["name", "age", "tags", "address"],
    "additionalProperties": False,
}
CONSTRAINT = Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(PERSON))
TEXT = '{"name":"Ada Lovelace","age":36,"tags":["mathematics","engines","notes on a translation","poetry of numbers"'


def mask_seconds(model: Path) -> float:
    """Return the median time of one mask along a sample answer, in this process, everything warm."""
    vocabulary = Vocabulary.from_path(model)
    fields = (CONSTRAINT.kind.value, CONSTRAINT.source, "", False, False, "benchmark")
    template = build_template(*compile_constraint(vocabulary, StructuredLimits(), *fields), vocabulary)
    token_ids = vocabulary.encode(TEXT)
    words = np.zeros(-(-len(vocabulary.tokens) // 32), dtype=np.int32)
    times = []
    for _ in range(20):
        matcher = template.start()
        for token_id in token_ids:
            started = perf_counter()
            matcher.fill(words)
            times.append(perf_counter() - started)
            if not matcher.accept(token_id):
                raise SystemExit("the sample text is not under the schema")
    return statistics.median(times[len(token_ids) :])


class Load:
    """Streams on one engine, timed from outside."""

    def __init__(self, model: Path, streams: int, num_tokens: int) -> None:
        self._updates: queue.SimpleQueue[list[RunEvents]] = queue.SimpleQueue()
        self._engine = Engine(EngineConfig(model, "benchmark", max_num_seqs=streams), self._updates.put)
        self._engine.start()
        self._num_tokens = num_tokens
        self._number = 0

    def token_seconds(self, plain: int, constrained: int) -> float:
        """Return the median seconds between two tokens of the plain streams, or of all if none is plain.

        Only the time while all streams run counts.
        """
        last: dict[str, float] = {}
        gaps: list[float] = []
        for index in range(plain + constrained):
            self._submit(index, CONSTRAINT if index >= plain else None)
        running = plain + constrained
        while running:
            for run in self._updates.get():
                now = perf_counter()
                is_counted = not plain or run.run_id.startswith("p")
                if any(isinstance(event.payload, Delta) for event in run.events):
                    if run.run_id in last and is_counted and len(last) == running:
                        gaps.append(now - last[run.run_id])
                    last[run.run_id] = now
                running -= run.events[-1].is_terminal
        return statistics.median(gaps)

    def close(self) -> None:
        self._engine.close()

    def _submit(self, index: int, constraint: Constraint | None) -> None:
        self._number += 1
        name = f"{'j' if constraint else 'p'}{self._number}"
        message: Message = {"role": "user", "content": f"Describe person number {index} at length, please."}
        stop = StopRules(max_tokens=self._num_tokens, min_tokens=self._num_tokens, ignore_eos=True)
        sampling = SamplingParams(temperature=0.8, seed=index)
        self._engine.submit(
            GenerationRequest(
                name, "benchmark", (message,), arrived_at=0.0, sampling=sampling, stop=stop, constraint=constraint
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    mask = mask_seconds(options.model)
    load = Load(options.model, options.streams, options.tokens)
    half = options.streams // 2
    load.token_seconds(half, options.streams - half)  # warms caches and the compiler
    rounds = [
        (
            load.token_seconds(options.streams, 0),
            load.token_seconds(half, options.streams - half),
            load.token_seconds(0, options.streams),
        )
        for _ in range(options.rounds)
    ]
    load.close()
    plain, beside, constrained = (min(times) for times in zip(*rounds, strict=True))
    print(
        f"a warm mask takes {mask * 1e6:.0f} us a row; "
        f"{options.streams} rows are {options.streams * mask / plain:.1%} of a step"
    )
    print(f"a token every {plain * 1e3:.2f} ms in {options.streams} plain streams")
    print(
        f"a token every {beside * 1e3:.2f} ms in {half} plain streams beside as many of JSON: {beside / plain - 1:+.1%}"
    )
    print(
        f"a token every {constrained * 1e3:.2f} ms in {options.streams} streams of JSON: {constrained / plain - 1:+.1%}"
    )


if __name__ == "__main__":
    main()
