"""A prompt that comes back: its first token computed, and with its prefix read back from a spill file.

    python benchmarks/spill.py MODEL [--tokens 7000] [--folder FOLDER] [--cold]

No HTTP; the core is a process, as when serving. The cache has room for the prompt and a tenth more. A prompt of random
tokens is computed, then others of 500 tokens, of twice what the cache holds, push it out, and it is sent again: it is
read back, and what it displaces is written. `--cold` does that once more before, with the file's pages dropped from
memory as far as the system does so: the line says how much was then read from the disk. Prints a line each. Linux only.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import re
import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.api import Completed, Delta, GenerationRequest, SamplingParams, StopRules
from engine.api.request import RawPrompt
from engine.config import EngineConfig
from engine.core.link import ProcessLink
from engine.engine import Engine, RunEvents
from engine.loading.loader import open_checkpoint
from engine.messages import CoreStats

OTHER_TOKENS = 500
BLOCK_SIZE = 16
MIB = 1 << 20


class Prompts:
    """An engine with a spill file, and prompts of random tokens for it. The process `core_pid` has the file."""

    def __init__(self, config: EngineConfig) -> None:
        self._published: queue.SimpleQueue[list[RunEvents]] = queue.SimpleQueue()
        core = ProcessLink(config)
        self.core_pid = core.pid
        self._engine = Engine(config, self._published.put, started_core=core)
        self._engine.start()
        self._random = random.Random(1)
        self._number = 0

    def prompt(self, num_tokens: int) -> tuple[int, ...]:
        return tuple(self._random.choices(range(200, 4000), k=num_tokens))

    def send(self, prompt_ids: tuple[int, ...]) -> tuple[float, int]:
        """Return the seconds to the first token of a prompt, and its cached tokens."""
        self._number += 1
        run_id = f"{self._number}"
        sampling, stop = SamplingParams(temperature=0.0), StopRules(max_tokens=2, ignore_eos=True)
        first_s = 0.0
        sent = perf_counter()
        self._engine.submit(
            GenerationRequest(
                run_id, "spill", (), arrived_at=0.0, sampling=sampling, stop=stop, raw=RawPrompt(token_ids=prompt_ids)
            )
        )
        while True:
            for event in (event for run in self._published.get() for event in run.events):
                if isinstance(event.payload, Delta):
                    first_s = first_s or perf_counter() - sent
                elif isinstance(event.payload, Completed):
                    return first_s, event.payload.usage.cached_tokens
                elif event.is_terminal:
                    raise SystemExit(f"the prompt was refused: {event.payload}")

    def stats(self) -> CoreStats:
        core = self._engine.stats().core
        assert core is not None
        return core

    def push_out(self) -> None:
        """Compute as many tokens of other prompts as twice the cache."""
        for _ in range(2 * self.stats().num_blocks * BLOCK_SIZE // OTHER_TOKENS + 1):
            self.send(self.prompt(OTHER_TOKENS))

    def read_back(self, prompt_ids: tuple[int, ...], what: str, *, is_cold: bool) -> None:
        """Push a prompt out, send it again and print its first token."""
        self.push_out()
        if is_cold:
            drop_pages(self.core_pid)
        num_restored, num_read = self.stats().num_restored_blocks, disk_bytes(self.core_pid)
        first_s, num_cached = self.send(prompt_ids)
        num_restored = self.stats().num_restored_blocks - num_restored
        read = f", {(disk_bytes(self.core_pid) - num_read) / MIB:.0f} MiB from the disk" if is_cold else ""
        print(f"{what:20} {first_s:8.3f} s   {num_cached} cached, {num_restored} blocks read back{read}", flush=True)
        if num_restored < num_cached // BLOCK_SIZE // 2:
            raise SystemExit("most of the prompt was still in the cache")

    def close(self) -> None:
        self._engine.close()


def block_bytes(model: Path) -> int:
    """Return the bytes of a block of a model whose cache is in bf16."""
    _, config, _ = open_checkpoint(model)
    shapes = [layer.attention for layer in config.layers]
    return 2 * 2 * BLOCK_SIZE * sum(shape.num_kv_heads * shape.head_size for shape in shapes)


def drop_pages(pid: int) -> None:
    """Write the files without a name that a process has open to the disk, and drop their pages from memory."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        if path.is_symlink() and os.readlink(path).endswith(" (deleted)"):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def disk_bytes(pid: int) -> int:
    """Return what a process has read from disks so far."""
    found = re.search(r"^read_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=7000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="of the file, on a disk")
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    size = block_bytes(options.model)
    num_blocks = options.tokens * 11 // 10 // BLOCK_SIZE + 2
    num_pushed = (2 + 2 * options.cold) * num_blocks
    prompts = Prompts(
        EngineConfig(
            options.model,
            "spill",
            kv_cache_bytes=num_blocks * size,
            kv_spill_bytes=2 * (num_blocks + num_pushed) * size,
            kv_spill_folder=options.folder,
        )
    )
    prompt_ids = prompts.prompt(options.tokens)
    prompts.send(prompts.prompt(OTHER_TOKENS))  # warms up
    first_s, _ = prompts.send(prompt_ids)
    print(f"{'computed':20} {first_s:8.3f} s   {options.tokens} tokens", flush=True)
    if options.cold:
        prompts.read_back(prompt_ids, "from the disk", is_cold=True)
    prompts.read_back(prompt_ids, "from the page cache", is_cold=False)
    prompts.close()


if __name__ == "__main__":
    main()
