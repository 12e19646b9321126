"""Which threads run programs: those of the OpenMP library that torch has loaded, or, once hired, threads of our own.

Where torch computes between kernels, a second pool of threads would stand in the way of torch's, which wait actively for their next work.
Where it does not, threads of our own are better: nobody has to be there when a program begins or ends, and they sleep when there is little
to do. They are hired by a process that computes so.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.kernels.cpu import program
from engine.kernels.cpu import work_sharing as board
from engine.kernels.cpu.openmp import PARALLEL

Program = ctypes.Array[ctypes.c_int64]

_run_alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(program.run_alone.address)
_put_up, _lead = (
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(function.address)
    for function in (board.put_up, board.lead)
)
_help_along = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(board.help_along.address)
_dismiss = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(board.dismiss.address)
_LIBRARY = ctypes.CDLL(None)


class Crew:
    """Threads of our own, which help the calling one. One program at a time."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self.is_free = threading.Lock()
        self._memory, self.board = board.make_board()
        _LIBRARY.sem_init(ctypes.c_void_p(self.board + board.SEMAPHORE), 0, 0)
        self._helpers = [
            threading.Thread(target=_help_along, args=(self.board, number), name=f"kernels-{number}", daemon=True)
            for number in range(1, num_threads)
        ]
        for helper in self._helpers:
            helper.start()

    def run(self, words: Program) -> None:
        """Run a program; the caller holds `is_free`."""
        _lead(self.board, words)

    def dismiss(self) -> None:
        """End the threads. Nothing may be under way."""
        _dismiss(self.board)
        for helper in self._helpers:
            helper.join()


class _Caller(threading.local):
    """Of each thread that runs programs by OpenMP: its board, and whether it wants no help."""

    def __init__(self) -> None:
        self.memory, self.board = board.make_board()
        self.is_alone = False


class Team:
    """The threads of this process that run programs."""

    def __init__(self) -> None:
        self._caller = _Caller()
        self._crew: Crew | None = None

    @property
    def num_threads(self) -> int:
        """How many the calling thread is helped by, itself included: as many as torch uses now, or as were hired."""
        if self._caller.is_alone or PARALLEL is None:
            return 1
        return torch.get_num_threads() if self._crew is None else self._crew.num_threads

    def run(self, words: Program, *, num_threads: int) -> None:
        """Run a program (program.assemble) that was made for so many threads."""
        crew = self._crew
        if num_threads > 1 and crew is None:
            _put_up(self._caller.board, words)
            PARALLEL(board.work.address, self._caller.board, num_threads, 0)
        elif (
            num_threads > 1
            and crew is not None
            and crew.num_threads == num_threads
            and crew.is_free.acquire(blocking=False)
        ):
            try:
                crew.run(words)
            finally:
                crew.is_free.release()
        else:
            _run_alone(words)

    def hire(self, num_threads: int) -> None:
        """Take threads of our own from now on, if none are there yet, and let torch compute with one."""
        if PARALLEL is not None and num_threads > 1 and self._crew is None:
            torch.set_num_threads(1)
            self._crew = Crew(num_threads)
            atexit.register(self.dismiss)

    def dismiss(self) -> None:
        """Go back to OpenMP's threads."""
        if self._crew is not None:
            atexit.unregister(self.dismiss)
            self._crew.dismiss()
            torch.set_num_threads(self._crew.num_threads)
            self._crew = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let the calling thread compute by itself, torch included, and make programs so."""
        num_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self._caller.is_alone = True
        try:
            yield
        finally:
            self._caller.is_alone = False
            torch.set_num_threads(num_threads)


TEAM = Team()
