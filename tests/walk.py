"""Print the walk of one streamed chat completion through our own code: its files and functions in all processes.

Run `python -m tests.walk`; `--list` names each file and its functions. Run it on a quiet machine: other load shows in
the times of the requests. It knows no module by name, so that two commits can be compared. pytest does not collect it.

The walk goes from the client's connection to the last frame, `data: [DONE]`. It contains what all of several requests
visit; the rest depends on the text or the moment. Usage is written while the last frame is sent, so that a few of its
functions vary between runs. Similar requests come first, so that one-time work of a process is left out. The text of
each request is new: only the blocks of the chat template are in the prefix cache. Heartbeats, leases and polls run
meanwhile. Each request therefore follows an idle interval of the same length, and what nearly all idle intervals visit
is left out. The HTTP server stays in the walk although the supervisor sometimes asks it for our health.

A comprehension is part of its function; the body of a module or a class is no function. A move is a pair of files of
which one calls the other, directly or through foreign code. A call by an event loop is a call by the file that runs the
loop.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.served import ROOT, ServedLightcone

WARM = ("bakery", "bridge", "garden")
ASKED = """
    castle desert forest harbour island library market mountain palace prison railway river school theatre tower village
""".split()
ASKING, IDLE = range(1, 1 + len(ASKED)), range(101, 101 + len(ASKED))
"""The numbers of the intervals, which fit in a byte."""
NEARLY_ALL = 14
"""Idle intervals that must contain a visit for it to count as background work.

Half of them contain work done twice a second, all of them work done four times a second.
"""

Key = TypeVar("Key")


class Visit(NamedTuple):
    """A line of the probe; a function is its file, its first line and its qualified name."""

    interval: int
    at: float
    process: str
    function: tuple[str, int, str]
    calling_file: str


class Probe:
    """Switch the probe hooks of all processes (tests/walk_probe) on and off, and read their notes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "interval").write_bytes(b"\0")
        self.environment = {"WALK_PROBE": str(folder), "PYTHONPATH": str(ROOT / "tests" / "walk_probe")}

    @contextmanager
    def noting(self, interval: int) -> Iterator[None]:
        with (self._folder / "interval").open("r+b") as shared:
            os.pwrite(shared.fileno(), bytes([interval]), 0)
            yield
            os.pwrite(shared.fileno(), b"\0", 0)

    def visits(self) -> list[Visit]:
        """Return those of the requests first, in order of time."""
        lines = (json.loads(line) for file in self._folder.glob("*.jsonl") for line in file.read_text().splitlines())
        return sorted(
            Visit(number, at, process, tuple(function), source) for number, at, process, function, source in lines
        )


def ask(served: ServedLightcone, subject: str) -> float:
    """Read one stream to its last frame, on a connection of its own; return the seconds it took."""
    body = {
        "model": served.model,
        "messages": [{"role": "user", "content": f"Tell me a long story about a {subject}."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 32,
        "temperature": 0,
    }
    headers = {"Authorization": f"Bearer {served.api_key}", "Content-Type": "application/json"}
    began_at = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    if not any(line.startswith(b"data: [DONE]") for line in iter(answer.readline, b"")):
        raise RuntimeError(f"a stream of status {answer.status} ended early")
    return time.monotonic() - began_at


def measure(folder: Path) -> tuple[list[Visit], list[float]]:
    """Serve, warm up, then idle and ask in turn; return the visits and the seconds that each request took."""
    probe = Probe(folder / "probe")
    with ServedLightcone(folder / "served", probe.environment).running() as served:
        *_, warm_s = [ask(served, subject) for subject in WARM]
        took_s = [warm_s]
        for subject, idle, asking in zip(ASKED, IDLE, ASKING, strict=True):
            time.sleep(2.0 + asking * 0.618 % 1)  # out of step with what is done once a second
            with probe.noting(idle):
                time.sleep(took_s[-1])
            with probe.noting(asking):
                took_s.append(ask(served, subject))
    return probe.visits(), took_s[1:]


def walked(visits: list[Visit], key: Callable[[Visit], Key]) -> tuple[list[Key], int]:
    """Return the visits of every request, in order, and their extra visits compared with idle intervals."""
    intervals: dict[Key, set[int]] = defaultdict(set)
    for visit in visits:
        intervals[key(visit)].add(visit.interval)
    always = [visited for visited, numbers in intervals.items() if numbers.issuperset(ASKING)]
    kept = [visited for visited in always if len(intervals[visited].intersection(IDLE)) < NEARLY_ALL]
    return kept, len(always) - len(kept)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.walk", description="Print the walk of a streamed request.")
    parser.add_argument("--list", action="store_true", help="name the files and functions, in order of the first visit")
    is_listed = parser.parse_args().list
    with tempfile.TemporaryDirectory() as folder:
        visits, took_s = measure(Path(folder))

    functions, num_idle = walked(visits, lambda visit: (visit.process, visit.function))
    moves, _ = walked(visits, lambda visit: (visit.process, visit.calling_file, visit.function[0]))
    num_moves = len({(source, file) for _, source, file in moves if source not in ("", file)})
    distinct = {function for _, function in functions}
    lines = [f"{len({file for file, _, _ in distinct})} files, {len(distinct)} functions, {num_moves} moves"]
    lines += [f"left out: {num_idle} functions that nearly all idle intervals visit too"]
    lines += [f"{len(ASKED)} requests took {min(took_s):.2f} to {max(took_s):.2f} s"]
    processes: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for process, (file, _, name) in functions:
        processes[process][os.path.relpath(file, ROOT)].append(name)
    for process, files in processes.items():
        lines += [f"{process}: {len(files)} files, {sum(map(len, files.values()))} functions"]
    for process, files in processes.items() if is_listed else ():
        lines += ["", process, *(f"  {file}: {', '.join(names)}" for file, names in files.items())]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
