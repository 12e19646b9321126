"""Record which of our functions a process calls, and from which of our files, for tests/walk.py.

Each of its interpreters imports this as it starts. All share a byte, the file `interval` in the folder WALK_PROBE: 0 is
off, another number is an interval to record. A process writes a line of JSON to its own file the first time in an
interval that one function calls another. It writes at once, so that a killed process has lost nothing.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT / package}{os.sep}" for package in ("lightcone_site", "chat", "engine"))
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
CO_OPTIMIZED = 1
"""Of `co_flags`: the code is a function, not the body of a module or a class."""


def install(folder: Path) -> None:
    """Hook this thread and all that start later."""
    with (folder / "interval").open("rb") as file:
        shared = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)
    process = " ".join(word for word in sys.orig_argv[1:] if not word.isdigit())  # without descriptors and sizes
    output = os.open(folder / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    seen: dict[tuple[int, int, int], tuple[CodeType, CodeType | None]] = {}  # keeps the codes, and so their ids

    def note(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not (interval := shared[0]):
            return
        code, caller = frame.f_code, frame.f_back.f_code if frame.f_back else None
        key = (interval, id(code), id(caller))
        if key in seen:
            return
        seen[key] = (code, caller)
        if code.co_flags & CO_OPTIMIZED and code.co_name not in COMPREHENSIONS and code.co_filename.startswith(OURS):
            function = (code.co_filename, code.co_firstlineno, code.co_qualname)
            os.write(
                output,
                json.dumps((interval, time.monotonic(), process, function, calling_file(frame))).encode() + b"\n",
            )

    threading.setprofile(note)
    sys.setprofile(note)


def calling_file(frame: FrameType) -> str:
    """Return the nearest of our files that this call comes out of; empty where there is none."""
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(OURS):
        caller = caller.f_back
    return caller.f_code.co_filename if caller else ""


install(Path(os.environ["WALK_PROBE"]))
