"""The threads that run programs: those of the OpenMP library that torch has loaded, or, once started, threads of our
own.

Where torch computes between kernels, a second pool would compete with torch's threads, which spin while they wait for
work. Where all the work is in our kernels, our own threads are better: a program need not wait for all of them to
arrive or to finish, and they sleep when there is little to do.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.kernels.cpu import program, work_sharing
from engine.kernels.cpu.openmp import PARALLEL

Program = ctypes.Array[ctypes.c_int64]

_run_sequentially = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(program.run_sequentially.address)
_submit, _run_as_leader = (
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(function.address)
    for function in (work_sharing.submit, work_sharing.run_as_leader)
)
_worker_loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(work_sharing.worker_loop.address)
_shutdown = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(work_sharing.shutdown.address)
_LIBRARY = ctypes.CDLL(None)


class WorkSharing:
    """Threads of our own that run programs together with the calling thread, one program at a time."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self.lock = threading.Lock()
        """Held by the thread that calls `run_as_leader`."""
        self._memory, self.shared = work_sharing.allocate_shared()
        _LIBRARY.sem_init(ctypes.c_void_p(self.shared + work_sharing.SEMAPHORE), 0, 0)
        self._workers = [
            threading.Thread(target=_worker_loop, args=(self.shared, number), name=f"kernels-{number}", daemon=True)
            for number in range(1, num_threads)
        ]
        for worker in self._workers:
            worker.start()

    def run_as_leader(self, program: Program) -> None:
        """Run a program; the caller holds `lock`."""
        _run_as_leader(self.shared, program)

    def shutdown(self) -> None:
        """End the threads. No program may be running."""
        _shutdown(self.shared)
        for worker in self._workers:
            worker.join()


class _CallingThread(threading.local):
    """What a thread that runs programs shares with OpenMP's threads, and whether it computes single-threaded."""

    def __init__(self) -> None:
        self.memory, self.shared = work_sharing.allocate_shared()
        self.is_single_threaded = False


class KernelThreads:
    """The threads of this process that run programs."""

    def __init__(self) -> None:
        self._calling_thread = _CallingThread()
        self._own: WorkSharing | None = None
        self._fewer: dict[int, WorkSharing] = {}
        """Further threads of our own, by their number, for limits below that of `_own`."""
        self._limit = 0
        """The most threads that compute; 0: all."""
        self._unlimited = 0
        """The threads of OpenMP when no limit holds."""

    @property
    def has_own(self) -> bool:
        """True if threads of our own have been started: torch then computes with one."""
        return self._own is not None

    @property
    def num_threads(self) -> int:
        """The threads that a program of the calling thread is cut for, itself included: all, whatever the limit."""
        if self._calling_thread.is_single_threaded or PARALLEL is None:
            return 1
        if self._own is not None:
            return self._own.num_threads
        return self._unlimited if self._limit else torch.get_num_threads()

    def run(self, program: Program, *, num_threads: int) -> None:
        """Run a program (program.assemble) that was cut for `num_threads`.

        The calling thread runs it alone where that is 1, another number was started, or another thread runs a program
        on ours.
        """
        own, limit = self._own, min(num_threads, self._limit or num_threads)
        if limit > 1 and own is None:
            _submit(self._calling_thread.shared, program)
            PARALLEL(work_sharing.openmp_worker.address, self._calling_thread.shared, limit, 0)
        elif limit > 1 and own is not None and own.num_threads == num_threads and own.lock.acquire(blocking=False):
            try:
                self._fewer.get(limit, own).run_as_leader(program)
            finally:
                own.lock.release()
        else:
            _run_sequentially(program)

    def limit(self, num_threads: int) -> None:
        """Compute with so many threads at most from now on, torch included; 0: with all.

        Programs keep their cut, and our kernels their results. What torch computes may change in the last bits. Call it
        between two programs, on the thread that runs them.
        """
        if self._own is None:
            self._unlimited = self._unlimited or torch.get_num_threads()
            torch.set_num_threads(min(num_threads or self._unlimited, self._unlimited))
        elif 1 < num_threads < self._own.num_threads and num_threads not in self._fewer:
            self._fewer[num_threads] = WorkSharing(num_threads)
        self._limit = num_threads
        if not num_threads:
            self._unlimited = 0

    def start(self, num_threads: int) -> None:
        """Start threads of our own, if none run yet, and let torch compute with one thread."""
        if PARALLEL is not None and num_threads > 1 and self._own is None:
            torch.set_num_threads(1)
            self._own = WorkSharing(num_threads)
            atexit.register(self.stop)

    def stop(self) -> None:
        """End our own threads and go back to OpenMP's."""
        if self._own is not None:
            atexit.unregister(self.stop)
            for threads in (self._own, *self._fewer.values()):
                threads.shutdown()
            self._fewer, self._limit = {}, 0
            torch.set_num_threads(self._own.num_threads)
            self._own = None

    @contextmanager
    def shared_with_torch(self) -> Iterator[None]:
        """Let torch compute on the calling thread with as many threads as programs may have at the start.

        Threads that have used torch before keep their number. Those that begin to meanwhile get this one.
        """
        if self._own is None:
            yield
            return
        torch.set_num_threads(self._limit or self._own.num_threads)
        try:
            yield
        finally:
            torch.set_num_threads(1)

    @contextmanager
    def single_threaded(self) -> Iterator[None]:
        """Make the calling thread compute, and record programs, with one thread, torch included."""
        num_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self._calling_thread.is_single_threaded = True
        try:
            yield
        finally:
            self._calling_thread.is_single_threaded = False
            torch.set_num_threads(num_threads)


KERNEL_THREADS = KernelThreads()
