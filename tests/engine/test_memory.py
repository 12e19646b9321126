"""Memory returns to the operating system, and paged-out pages read as before."""

import ctypes
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.memory import HeapTrimmer, drop_mapped, page_out, unwritten_ranges

ROOT = Path(__file__).resolve().parents[2]
MAPS = """\
7f0000000000-7f0000002000 r--p 00000000 fd:00 11 /usr/lib/libllvmlite.so
7f0000002000-7f0000005000 r-xp 00002000 fd:00 11 /usr/lib/libllvmlite.so
7f0000005000-7f0000006000 rw-p 00005000 fd:00 11 /usr/lib/libllvmlite.so
7f0000006000-7f0000007000 r-xp 00000000 fd:00 12 /usr/lib/libllvmlite/other library.so
7f0000007000-7f0000008000 r--p 00000000 00:00 0
7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0  [vdso]
"""


def test_only_unwritten_pages_of_the_file_are_paged_out():
    assert list(unwritten_ranges(MAPS, "libllvmlite")) == [(0x7F0000000000, 0x2000), (0x7F0000002000, 0x3000)]
    assert list(unwritten_ranges(MAPS, "other lib")) == [(0x7F0000006000, 0x1000)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing happens")
def test_a_file_reads_the_same_after_its_pages_are_paged_out(tmp_path: Path):
    path = tmp_path / "left-over"
    path.write_bytes(bytes(range(256)) * 64)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        before = bytes(mapped)
        page_out("left-over")
        assert bytes(mapped) == before == path.read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing happens")
def test_bytes_written_before_a_page_became_read_only_survive_paging_out(tmp_path: Path):
    """The dynamic loader does this with tables of a library."""
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


LEAVE_FREED_HEAP = """
from pathlib import Path
from engine.memory import trim_heap

def resident(kind):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) * 1024

pieces = [bytes(1500) for _ in range(60_000)]  # 90 MB in pieces that malloc takes from the heap
last = bytes(1500)  # keeps the end of the heap in use
del pieces
before = resident("RssAnon")
trim_heap()
first = resident("RssAnon")
trim_heap()
print(before, first, resident("RssAnon"), len(last))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing happens")
def test_trimming_the_heap_returns_freed_memory_to_the_system():
    done = subprocess.run(
        [sys.executable, "-c", LEAVE_FREED_HEAP], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    before, after, after_second, _ = map(int, done.stdout.split())
    assert after < before - 50 * 2**20
    assert after_second <= after + 2**20, "trimming twice does no harm"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing happens")
def test_paging_out_a_file_makes_its_resident_pages_fewer(tmp_path: Path):
    """On a file system in memory (tmpfs) pages stay resident."""
    path = tmp_path / "left-over"
    path.write_bytes(bytes(range(256)) * 2**16)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        os.fsync(file.fileno())
        assert sum(mapped[:: mmap.PAGESIZE]) >= 0  # touch every page
        before = resident_of("left-over")
        page_out("left-over")
        after = resident_of("left-over")
    assert before == 16 * 2**20
    if not is_tmpfs(tmp_path):
        assert after < before // 4


def resident_of(name: str) -> int:
    """Return bytes of the mapping of a file that are in memory, from /proc/self/smaps."""
    entry = Path("/proc/self/smaps").read_text().split(name, 1)[1]
    return int(entry.split("Rss:", 1)[1].split()[0]) * 1024


def is_tmpfs(folder: Path) -> bool:
    kinds = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return max((len(place), kind) for _, place, kind, *_ in kinds if str(folder).startswith(place))[1] == "tmpfs"


def test_the_heap_is_trimmed_once_per_schedule_and_again_when_rescheduled():
    gone = threading.Semaphore(0)
    trimmer = HeapTrimmer(0.0, gone.release)
    trimmer.schedule()
    assert gone.acquire(timeout=10)
    trimmer.schedule()
    assert gone.acquire(timeout=10)
    later = HeapTrimmer(60.0, gone.release)
    later.schedule()
    later.schedule()
    timers = [
        thread for thread in threading.enumerate() if isinstance(thread, threading.Timer) and thread.interval == 60.0
    ]
    for timer in timers:
        timer.cancel()
    assert len(timers) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_of_a_mapped_file_are_given_back_and_can_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a model.gguf"
    file.write_bytes(bytes(range(256)) * 4096)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY) as contents:

        def resident() -> int:
            part = Path("/proc/self/smaps").read_text().partition(str(file))[2]
            return next(int(line.split()[1]) for line in part.splitlines() if line.startswith("Rss:"))

        assert sum(contents[:]) == 4096 * sum(range(256))
        assert resident() == 1024
        drop_mapped([tmp_path / "another.gguf"])
        assert resident() == 1024
        drop_mapped([file])
        assert resident() == 0
        assert contents[:256] == bytes(range(256))
