"""Two models on one machine: what each computes alone on one thread and on all, and what both compute together.

    python benchmarks/turns.py MODEL:KIND:STREAMS MODEL:KIND:STREAMS [--seconds 10] [--rounds 1]

KIND is `decode` (endless answers) or `prompts` (endless prompts of 600 random tokens, with one token each). No HTTP;
each core is a process, as when serving. Both together are measured without and with `turns_file`. A row for each side:
tokens a second, processors that its core has used, and the median, 95 % and longest gap between two tokens of a stream
(with `prompts`: between the ends of two). "of half" is the mean of the sides' speeds together, each divided by its
speed alone on one thread. Linux, two processors.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import sys
import tempfile
import threading
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.api import Completed, Delta, GenerationRequest, SamplingParams, StopRules
from engine.api.request import RawPrompt
from engine.config import EngineConfig
from engine.core.link import ProcessLink
from engine.engine import Engine, RunEvents

PROMPT_TOKENS, ANSWER_TOKENS, FIRST_TOKENS = 600, 400, 100
WARM_S, LEAST_EVENTS = 2.0, 3
TICKS = os.sysconf("SC_CLK_TCK")


class Side:
    """A model with endless streams of work. `model`: a path, a kind of work and a number of streams."""

    def __init__(self, model: str, num_threads: int, turns_file: Path | None) -> None:
        path, self.kind, streams = model.rsplit(":", 2)
        self.name = f"{Path(path).name[:24]} {self.kind} x {streams}"
        published: queue.SimpleQueue[list[RunEvents] | None] = queue.SimpleQueue()
        config = EngineConfig(
            Path(path), "turns", num_threads=num_threads, kv_cache_bytes=512 << 20, turns_file=turns_file
        )
        core = ProcessLink(config)
        self._pid = core.pid
        self._published = published
        self._engine = Engine(config, published.put, started_core=core)
        self._engine.start()
        self._random = random.Random(1)
        self._number = 0
        self._num_streams = int(streams)
        self._tokens: list[tuple[float, int]] = []
        """When tokens came, and how many."""
        self._last: dict[str, float] = {}
        self._gaps: list[float] = []
        self._is_busy = threading.Event()
        threading.Thread(target=self._receive, daemon=True).start()

    def start(self) -> None:
        self._is_busy.set()
        for number in range(self._num_streams):
            self._submit(f"{number}")

    def measure(self, seconds: float) -> tuple[float, float, list[float]]:
        """Return tokens and processor seconds of a second, and the gaps."""
        self._tokens, self._gaps = [], []
        began, used = perf_counter(), self._processor_s()
        sleep(seconds)
        while len(self._tokens) < LEAST_EVENTS:
            sleep(0.2)
        passed, used = perf_counter() - began, self._processor_s() - used
        tokens = list(self._tokens)
        speed = sum(count for _, count in tokens[1:]) / (tokens[-1][0] - tokens[0][0])
        return speed, used / passed, sorted(self._gaps) or [0.0]

    def stop(self) -> None:
        self._is_busy.clear()
        self._engine.close(0.0)
        self._published.put(None)

    def _processor_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def _submit(self, stream: str) -> None:
        self._number += 1
        count, most = (FIRST_TOKENS, ANSWER_TOKENS) if self.kind == "decode" else (PROMPT_TOKENS, 1)
        ids = tuple(self._random.choices(range(200, 4000), k=count))
        self._engine.submit(
            GenerationRequest(
                f"{stream}.{self._number}",
                "turns",
                (),
                arrived_at=0.0,
                sampling=SamplingParams(temperature=0.0),
                stop=StopRules(max_tokens=most, ignore_eos=True),
                raw=RawPrompt(token_ids=ids),
            )
        )

    def _receive(self) -> None:
        while (published := self._published.get()) is not None:
            for run in published:
                for event in run.events:
                    self._note(run.run_id.partition(".")[0], event.payload, event.is_terminal)

    def _note(self, stream: str, payload: object, is_over: bool) -> None:
        if isinstance(payload, Delta):
            now = perf_counter()
            self._tokens.append((now, PROMPT_TOKENS if self.kind == "prompts" else len(payload.token_ids)))
            if stream in self._last:
                self._gaps.append(now - self._last[stream])
            self._last[stream] = now
        if is_over and not isinstance(payload, Completed) and self._is_busy.is_set():
            raise SystemExit(f"a run failed: {payload}")
        if is_over and self._is_busy.is_set():
            if self.kind == "decode":
                self._last.pop(stream, None)
            self._submit(stream)


def measured(models: list[str], num_threads: int, seconds: float, turns_file: Path | None) -> list[float]:
    """Measure models together and print a row for each; return their tokens a second."""
    sides = [Side(model, num_threads, turns_file) for model in models]
    for side in sides:
        side.start()
    sleep(WARM_S)
    found: dict[int, tuple[float, float, list[float]]] = {}
    threads = [
        threading.Thread(target=lambda number=number, side=side: found.update({number: side.measure(seconds)}))
        for number, side in enumerate(sides)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    label = "together" if len(models) > 1 else f"alone, {num_threads or os.cpu_count()} threads"
    label += ", turns" if turns_file is not None else ""
    for number, side in enumerate(sides):
        speed, used, gaps = found[number]
        shown = " ".join(f"{gap * 1e3:7.1f}" for gap in (median(gaps), gaps[int(0.95 * (len(gaps) - 1))], gaps[-1]))
        print(f"{label:22} {side.name:44} {speed:8.1f} tokens/s  {used:5.2f} processors  gaps {shown} ms", flush=True)
    for side in sides:
        side.stop()
    return [found[number][0] for number in range(len(sides))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs=2)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        turns_file = Path(folder) / "turns"
        for _ in range(options.rounds):
            halves = [measured([model], 1, options.seconds, None)[0] for model in options.models]
            wholes = [measured([model], 0, options.seconds, turns_file)[0] for model in options.models]
            shown = ", ".join(f"{whole / half:.2f}" for whole, half in zip(wholes, halves, strict=True))
            print(f"all threads alone, of one: {shown}")
            for file in (None, turns_file):
                both = measured(options.models, 0, options.seconds, file)
                parts = [speed / half for speed, half in zip(both, halves, strict=True)]
                print(f"of half: {sum(parts) / len(parts):.2f} ({parts[0]:.2f} and {parts[1]:.2f})", flush=True)


if __name__ == "__main__":
    main()
