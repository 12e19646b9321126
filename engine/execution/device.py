"""Checks of the device: whether it can be used as configured, and whether a failed step has lost it.

The core checks before it loads a model, and after a step that failed. For processes that must not load torch
(`manage.py doctor`) `python -m engine.execution.device '{"device": "cuda", …}'` prints why not, and exits with 1.
"""

from __future__ import annotations

import contextlib
import json
import sys
import textwrap
from collections.abc import Iterator

import torch

from engine.api.errors import ModelLoadError
from engine.attention.backend import cache_dtype
from engine.quantization.scheme import WeightScheme

LEAST_CAPABILITY = (8, 0)
"""Ampere: the first that multiplies bfloat16."""
STICKY_ERRORS = (
    "illegal memory access",
    "illegal instruction",
    "misaligned address",
    "invalid program counter",
    "hardware stack error",
    "device-side assert",
    "unspecified launch failure",
    "launch timed out",
    "uncorrectable",
    "no cuda-capable device",
    "busy or unavailable",
)
"""Texts of CUDA errors that stay with a process: every later call returns them, so none needs to be made."""
MESSAGE_CHARS = 300


def check_device(
    device: str, weights: str = "auto", kv_cache: str = "auto", batch_invariant: bool = False
) -> torch.device:
    """Try a device with these options and return it. Raises ModelLoadError that names what to change."""
    if batch_invariant and device != "cpu":
        raise ModelLoadError(
            f"batch_invariant is not offered on {device!r}: there the products of torch depend on how many rows are "
            "computed together, so that a request may get other tokens in a crowd than alone; unset it, or use device "
            "'cpu'"
        )
    opened = torch.device(device)
    if opened.type == "cuda":
        _open_cuda(opened)
    cache_dtype(weights, kv_cache, opened)
    WeightScheme(weights, opened, batch_invariant)
    return opened


def _open_cuda(device: torch.device) -> None:
    if torch.version.cuda is None:
        version = torch.__version__.partition("+")[0]
        raise ModelLoadError(
            f"device 'cuda' cannot be used: this torch, {torch.__version__}, is built without CUDA; on Linux "
            f"`pip install --force-reinstall torch=={version}` with no other index brings the build with it, "
            "or use device 'cpu'"
        )
    try:
        torch.ones(1, device=device).add_(1).item()
        capability = torch.cuda.get_device_capability(device)
    except RuntimeError as error:
        problem = textwrap.shorten(str(error), MESSAGE_CHARS)
        raise ModelLoadError(
            f"device 'cuda' cannot be used: {problem}; this torch wants an NVIDIA GPU and a driver for CUDA "
            f"{torch.version.cuda}: see what nvidia-smi and CUDA_VISIBLE_DEVICES say, or use device 'cpu'"
        ) from error
    if capability < LEAST_CAPABILITY:
        wanted, found = (".".join(map(str, version)) for version in (LEAST_CAPABILITY, capability))
        raise ModelLoadError(
            f"device 'cuda' needs compute capability {wanted} or more, this GPU has {found}: use device 'cpu'"
        )


def has_lost_device(error: Exception) -> bool:
    """Return True if after this error only a new process can compute again. Running out of memory is temporary."""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    return _is_sticky(error) or not _answers()


def _is_sticky(error: Exception) -> bool:
    """Look at the text of torch's own device errors only: that of another may come from a request."""
    text = str(error).lower()
    return isinstance(error, torch.AcceleratorError) and any(words in text for words in STICKY_ERRORS)


def _answers() -> bool:
    """Return True if the device still works, or none is used."""
    if not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


@contextlib.contextmanager
def refused_if_too_large() -> Iterator[None]:
    """Turn running out of the device's memory into a ModelLoadError; for loading a model."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        problem = textwrap.shorten(str(error), MESSAGE_CHARS)
        raise ModelLoadError(
            f"the device's memory does not suffice for this model: {problem} Use a smaller model, weights 'int8', a "
            "lower max_num_batched_tokens or max_num_seqs, a kv_cache_bytes that leaves more, or end what else uses "
            "the device"
        ) from error


def main(options: str) -> int:
    """Check the device that JSON options describe; return the exit status."""
    try:
        check_device(**json.loads(options))
    except ModelLoadError as error:
        sys.stdout.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
