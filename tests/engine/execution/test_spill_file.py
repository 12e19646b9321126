"""The spill file: bytes come back as they were, nothing is left behind, and what cannot be had is refused by name."""

import contextlib
import os
import random
import sys
from collections import namedtuple

import pytest
import torch

from engine import spill_folder
from engine.api.errors import ModelLoadError
from engine.attention.cache_groups import CacheGroups
from engine.config import EngineConfig
from engine.core.build import build_core
from engine.execution import spill_file
from engine.execution.spill_file import check_spill, make_spill_file
from tests.engine.in_process import QueueChannel

BLOCK_BYTES = 2 * 3 * 40 * 2
GROUPS = CacheGroups(16)


def make_caches(dtype=torch.bfloat16, num_blocks=7):
    """Return keys and values of three tensors, 40 numbers a block, all of them random bits."""
    words = torch.int16 if dtype.itemsize == 2 else torch.int32
    return [torch.randint(-(1 << 15), 1 << 15, (3, num_blocks, 40), dtype=words).view(dtype) for _ in range(2)]


def make_config(folder, num_bytes=100 * BLOCK_BYTES, **changes):
    return EngineConfig(folder / "no such model", "name", kv_spill_bytes=num_bytes, kv_spill_folder=folder, **changes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_blocks_come_back_with_the_same_bytes(tmp_path, dtype):
    caches = make_caches(dtype)
    file = make_spill_file(make_config(tmp_path), GROUPS, *caches)
    assert file.num_places == 100 * BLOCK_BYTES // file.block_bytes
    choice, stored = random.Random(0), {}
    expected = [cache.clone() for cache in caches]
    for _ in range(300):
        place, block_id = choice.randrange(file.num_places), choice.randrange(7)
        if place in stored:
            file.read(place, block_id)
            for cache, content in zip(expected, stored[place], strict=True):
                cache[:, block_id] = content
        else:
            file.write(place, block_id)
            stored[place] = [cache[:, block_id].clone() for cache in expected]
        for cache, content in zip(caches, expected, strict=True):
            assert torch.equal(cache.view(torch.uint8), content.view(torch.uint8))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_file_has_its_bytes_on_the_disk_and_no_name(tmp_path):
    file = make_spill_file(make_config(tmp_path, 1 << 20), GROUPS, *make_caches())
    assert list(tmp_path.iterdir()) == []
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed
            found.append(os.fstat(int(name)))
    assert any(not one.st_nlink and one.st_size == 1 << 20 and one.st_blocks * 512 >= 1 << 20 for one in found)
    assert file.num_places == (1 << 20) // BLOCK_BYTES


def test_without_bytes_there_is_no_file(tmp_path):
    assert make_spill_file(make_config(tmp_path, 0), GROUPS, *make_caches()) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "cuda"}, "LIGHTCONE_KV_SPILL_BYTES is offered on device 'cpu' only, got 'cuda': unset it"),
        ({"prefix_caching": False}, "LIGHTCONE_PREFIX_CACHING is off: unset one of them"),
        (
            {"num_bytes": 1 << 60},
            r"LIGHTCONE_KV_SPILL_BYTES, 1152921504606846976, cannot be had in .*: its disk has room for \d+",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_before_the_model_is_read(tmp_path, changes, message):
    with pytest.raises(ModelLoadError, match=message):
        check_spill(make_config(tmp_path, **changes))
    if "device" not in changes:  # which may be refused as a whole
        with pytest.raises(ModelLoadError, match=message):
            build_core(make_config(tmp_path, **changes), QueueChannel())


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(
        ModelLoadError,
        match=r"the folder of the spill file, .*nowhere, cannot be used: No such file.*set LIGHTCONE_KV_SPILL_FOLDER",
    ):
        check_spill(make_config(tmp_path / "nowhere"))


def test_a_disk_that_is_nearly_full_is_refused_with_the_remedy(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(spill_folder.shutil, "disk_usage", lambda folder: usage(1000_000, 900_000, 100_000))
    check_spill(make_config(tmp_path, 50_000))
    with pytest.raises(ModelLoadError, match="room for 50000 with a twentieth.* lower it, free space there, set"):
        check_spill(make_config(tmp_path, 50_001))


def test_a_disk_that_fills_before_the_file_is_made_is_refused_with_the_remedy(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill_file.os, "posix_fallocate", fail, raising=False)
    with pytest.raises(ModelLoadError, match="LIGHTCONE_KV_SPILL_BYTES, .*: No space left on device; lower it"):
        make_spill_file(make_config(tmp_path), GROUPS, *make_caches())


def test_a_system_that_cannot_reserve_bytes_writes_them(tmp_path, monkeypatch):
    monkeypatch.delattr(spill_file.os, "posix_fallocate", raising=False)
    caches = make_caches()
    file = make_spill_file(make_config(tmp_path, (1 << 20) + 5000), GROUPS, *caches)
    kept = caches[0][:, 3].clone()
    file.write(file.num_places - 1, 3)
    file.read(file.num_places - 1, 4)
    assert torch.equal(caches[0][:, 4].view(torch.uint8), kept.view(torch.uint8))


def test_less_than_a_block_is_refused_with_the_bytes_of_one(tmp_path):
    with pytest.raises(ModelLoadError, match=f"at least {BLOCK_BYTES}, the bytes of a block of this model, got 479"):
        make_spill_file(make_config(tmp_path, BLOCK_BYTES - 1), GROUPS, *make_caches())


@pytest.mark.parametrize("windows", [(0, 32), (0, 0), (32,)])
def test_models_with_several_groups_or_windows_are_refused(tmp_path, windows):
    with pytest.raises(ModelLoadError, match="see the whole context and have equally large keys.*unset it"):
        make_spill_file(make_config(tmp_path), CacheGroups(16, windows), *make_caches())
