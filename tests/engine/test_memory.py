"""What is given back is still there when it is wanted."""

import ctypes
import mmap
import sys
import threading
from pathlib import Path

import pytest

from engine.memory import Leftovers, page_out, trim_heap, unwritten_ranges

MAPS = """\
7f0000000000-7f0000002000 r--p 00000000 fd:00 11 /usr/lib/libllvmlite.so
7f0000002000-7f0000005000 r-xp 00002000 fd:00 11 /usr/lib/libllvmlite.so
7f0000005000-7f0000006000 rw-p 00005000 fd:00 11 /usr/lib/libllvmlite.so
7f0000006000-7f0000007000 r-xp 00000000 fd:00 12 /usr/lib/libllvmlite/other library.so
7f0000007000-7f0000008000 r--p 00000000 00:00 0
7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0  [vdso]
"""


def test_only_pages_of_the_file_that_nobody_has_written_to_are_given_back():
    assert list(unwritten_ranges(MAPS, "libllvmlite")) == [(0x7F0000000000, 0x2000), (0x7F0000002000, 0x3000)]
    assert list(unwritten_ranges(MAPS, "other lib")) == [(0x7F0000006000, 0x1000)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing happens")
def test_a_file_whose_pages_were_given_back_reads_as_before(tmp_path: Path):
    path = tmp_path / "left-over"
    path.write_bytes(bytes(range(256)) * 64)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        before = bytes(mapped)
        page_out("left-over")
        assert bytes(mapped) == before == path.read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing happens")
def test_what_was_written_before_a_page_became_read_only_stays(tmp_path: Path):
    """As the loader does with the tables of a library."""
    path = tmp_path / "left-over"
    path.write_bytes(bytes(2 * mmap.PAGESIZE))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        mapped[:7] = b"written"
        view = ctypes.c_char.from_buffer(mapped)
        place, protect = ctypes.addressof(view), ctypes.CDLL(None).mprotect
        assert protect(ctypes.c_void_p(place), ctypes.c_size_t(len(mapped)), mmap.PROT_READ) == 0
        assert (place, len(mapped)) in unwritten_ranges(Path("/proc/self/maps").read_text(), "left-over")
        page_out("left-over")
        assert mapped[:8] == b"written\0"
        del view


def test_giving_back_twice_does_no_harm():
    trim_heap()
    trim_heap()


def test_what_much_work_leaves_is_given_back_once_and_again_after_more_of_it():
    gone = threading.Semaphore(0)
    leftovers = Leftovers(0.0, gone.release)
    leftovers.come()
    assert gone.acquire(timeout=10)
    leftovers.come()
    assert gone.acquire(timeout=10)
    later = Leftovers(60.0, gone.release)
    later.come()
    later.come()
    timers = [
        thread for thread in threading.enumerate() if isinstance(thread, threading.Timer) and thread.interval == 60.0
    ]
    for timer in timers:
        timer.cancel()
    assert len(timers) == 1
