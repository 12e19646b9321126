"""The spill file: evicted blocks of a CPU's KV cache in a memory-mapped file, which the next of the same prefix reads.

The file has no name, so nothing is left of it when its process ends, however that ends. Its bytes are taken from the
disk at once, so that a disk that is full later fails no step.
"""

from __future__ import annotations

import logging
import mmap
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from engine.api.errors import ModelLoadError
from engine.attention.cache_groups import CacheGroups
from engine.config import EngineConfig
from engine.spill_folder import is_in_memory, room_bytes

logger = logging.getLogger(__name__)

ZEROS = bytes(1 << 20)


def check_spill(config: EngineConfig) -> None:
    """Refuse a spill file that cannot be used, before a model is loaded. Raises ModelLoadError with what to change."""
    if not config.kv_spill_bytes:
        return
    if config.device != "cpu":
        raise ModelLoadError(
            f"LIGHTCONE_KV_SPILL_BYTES is offered on device 'cpu' only, got {config.device!r}: unset it, or use device "
            "'cpu'"
        )
    if not config.prefix_caching:
        raise ModelLoadError(
            "LIGHTCONE_KV_SPILL_BYTES keeps blocks of the prefix cache, and LIGHTCONE_PREFIX_CACHING is off: unset one "
            "of them"
        )
    folder = _folder(config)
    try:
        most = room_bytes(folder)
    except OSError as error:
        raise ModelLoadError(
            f"the folder of the spill file, {folder}, cannot be used: {error.strerror}; set LIGHTCONE_KV_SPILL_FOLDER "
            "to one that can, or unset LIGHTCONE_KV_SPILL_BYTES"
        ) from error
    if config.kv_spill_bytes > most:
        raise _too_large(config, f"its disk has room for {most} with a twentieth of it left free")


def make_spill_file(
    config: EngineConfig, groups: CacheGroups, keys: torch.Tensor, values: torch.Tensor
) -> SpillFile | None:
    """Return the file for the blocks of a cache; None if it has no bytes. Raises ModelLoadError with what to change.

    keys, values: as in `SpillFile`
    """
    if not config.kv_spill_bytes:
        return None
    if groups.windows != (0,):
        raise ModelLoadError(
            "LIGHTCONE_KV_SPILL_BYTES is offered for models whose layers all see the whole context and have equally "
            "large keys, and this model has others: unset it"
        )
    block_bytes = _block_bytes(keys) + _block_bytes(values)
    if config.kv_spill_bytes < block_bytes:
        raise ModelLoadError(
            f"LIGHTCONE_KV_SPILL_BYTES must be at least {block_bytes}, the bytes of a block of this model, "
            f"got {config.kv_spill_bytes}: raise it, or unset it"
        )
    file = SpillFile(_reserved_file(config), config.kv_spill_bytes // block_bytes, keys, values)
    logger.info("spill file: %d blocks in %s", file.num_places, _folder(config))
    if is_in_memory(_folder(config)):
        logger.warning(
            "the spill file is in memory, as %s is: a larger LIGHTCONE_KV_CACHE_BYTES is faster", _folder(config)
        )
    return file


class SpillFile:
    """Room for `num_places` blocks of a cache, written as a file and read as memory.

    A first write through the mapping would take two to three times as long: each of its pages is a fault.
    """

    def __init__(self, file: BinaryIO, num_places: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """`file`: unbuffered, has the bytes. keys, values: (tensors, B, numbers) of a CPU"""
        self.num_places = num_places
        self.block_bytes = _block_bytes(keys) + _block_bytes(values)
        self._cached = [cache.view(torch.uint8).numpy() for cache in (keys, values)]
        self._file = file
        self._copy = np.empty((2, len(keys), self._cached[0].shape[2]), dtype=np.uint8)
        memory = mmap.mmap(file.fileno(), num_places * self.block_bytes, access=mmap.ACCESS_READ)
        self._places = np.frombuffer(memory, dtype=np.uint8).reshape(num_places, *self._copy.shape)

    def write(self, place: int, block_id: int) -> None:
        for half, cached in zip(self._copy, self._cached, strict=True):
            half[:] = cached[:, block_id]
        self._file.seek(place * self.block_bytes)
        left = self._copy.data.cast("B")
        while left:
            left = left[self._file.write(left) :]

    def read(self, place: int, block_id: int) -> None:
        for half, cached in zip(self._places[place], self._cached, strict=True):
            cached[:, block_id] = half


def _block_bytes(cache: torch.Tensor) -> int:
    return len(cache) * cache.shape[2] * cache.itemsize


def _folder(config: EngineConfig) -> Path:
    return config.kv_spill_folder or Path(tempfile.gettempdir())


def _reserved_file(config: EngineConfig) -> BinaryIO:
    """Return a file without a name that has all its bytes on the disk."""
    try:
        file = tempfile.TemporaryFile(dir=_folder(config), buffering=0)  # noqa: SIM115 (it lives as long as the cache)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, config.kv_spill_bytes)
        else:
            for start in range(0, config.kv_spill_bytes, len(ZEROS)):
                file.write(ZEROS[: config.kv_spill_bytes - start])
    except OSError as error:
        raise _too_large(config, str(error.strerror)) from error
    return file


def _too_large(config: EngineConfig, problem: str) -> ModelLoadError:
    return ModelLoadError(
        f"LIGHTCONE_KV_SPILL_BYTES, {config.kv_spill_bytes}, cannot be had in {_folder(config)}: {problem}; lower it, "
        "free space there, set LIGHTCONE_KV_SPILL_FOLDER to another disk, or unset it"
    )
