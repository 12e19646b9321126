"""The ways in which kernels get threads, for tests of results that must not depend on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.kernels.cpu.threads import KERNEL_THREADS

WAYS = (1, 2, "2 own")
"""OpenMP's threads by number, or threads of our own."""


@contextmanager
def threads_of(way: int | str) -> Iterator[None]:
    """Compute in one of WAYS."""
    before = torch.get_num_threads()
    if isinstance(way, str):
        KERNEL_THREADS.start(int(way.split()[0]))
    else:
        torch.set_num_threads(way)
    try:
        yield
    finally:
        KERNEL_THREADS.stop()
        torch.set_num_threads(before)
