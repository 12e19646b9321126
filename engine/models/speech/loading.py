"""Load a model of speech from a folder: the family by its name, with one error for all that transformers raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from engine.api.errors import ModelLoadError


@contextmanager
def load_quietly(path: Path) -> Iterator[None]:
    """Make a ModelLoadError of what transformers raises, and keep its warnings and bars out of the log."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, RuntimeError, AttributeError, KeyError, TypeError) as error:
        raise ModelLoadError(f"{path}: the model of speech cannot be loaded: {error}") from error
    finally:
        transformers_logging.set_verbosity(verbosity)


def read_model(family: Any, path: Path, dtype: torch.dtype) -> Any:
    """Read the weights of a folder's safetensors files into the modules of a family. Raises ModelLoadError."""
    model, found = family.from_pretrained(path, dtype=dtype, use_safetensors=True, output_loading_info=True)
    for name in ("missing_keys", "mismatched_keys"):
        if found[name]:
            listed = ", ".join(map(str, sorted(found[name])[:3]))
            raise ModelLoadError(f"{path}: {len(found[name])} tensors are missing or misshapen, such as {listed}")
    return model
