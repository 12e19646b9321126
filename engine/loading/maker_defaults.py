"""The sampling values that a model's makers recommend, read from its files, for requests that omit a field.

A folder has them in `generation_config.json`, a GGUF file in its metadata (`general.sampling.*`, as llama.cpp defines
them). CARDS holds the values of model cards for files without them. Names are those of requests; values that a request
could not send are dropped. Called by the model worker, which publishes them to the web processes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.api.errors import ModelLoadError
from engine.gguf_file import GgufFile
from engine.gguf_pair import text_file

FILE_NAME = "generation_config.json"
MAX_FILE_BYTES = 2**20
SMALLEST = math.ulp(0.0)
DECIMALS = 6
"""GGUF holds 32-bit floats: 0.9 is read as 0.8999999761581421."""
BOUNDS = {
    "temperature": (0, 2),
    "top_k": (-1, 2**31),
    "top_p": (SMALLEST, 1),
    "min_p": (0, 1),
    "repetition_penalty": (SMALLEST, 1_000),
    "max_completion_tokens": (1, 2**31),
}
INTEGERS = ("top_k", "max_completion_tokens")
CONFIG_NAMES = {"max_completion_tokens": "max_new_tokens"}
"""Names that generation_config.json spells differently."""
GGUF_NAMES = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
CARDS: dict[tuple[str, str], dict[str, float]] = {
    # https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
    ("HuggingFaceTB", "smollm2"): {"temperature": 0.2, "top_p": 0.9},
}
"""(`general.organization`, `general.basename`) of GGUF files -> what the model's card recommends."""


def maker_defaults(path: Path) -> dict[str, float]:
    """Return the usable values of the model at `path`, or {}. Never raises for the contents of a file."""
    try:
        path = text_file(path)
    except ModelLoadError:
        return {}
    return _of_folder(path) if path.is_dir() else _of_gguf(path)


def _of_folder(path: Path) -> dict[str, float]:
    file = path / FILE_NAME
    try:
        if not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:
            return {}
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(config, dict):
        return {}
    return _usable({name: config.get(CONFIG_NAMES.get(name, name)) for name in BOUNDS})


def _of_gguf(path: Path) -> dict[str, float]:
    try:
        metadata: Mapping[str, Any] = GgufFile.read_metadata(path)
    except ModelLoadError:
        return {}
    values = {name: metadata.get(key) for name, key in GGUF_NAMES.items()}
    rounded = {
        name: round(value, DECIMALS) if isinstance(value, float) and math.isfinite(value) else value
        for name, value in values.items()
    }
    card = CARDS.get((str(metadata.get("general.organization")), str(metadata.get("general.basename"))), {})
    return card | _usable(rounded)


def _usable(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if _is_within(value, name, BOUNDS[name])}


def _is_within(value: Any, name: str, bounds: tuple[float, float]) -> bool:
    """Return True for a number within bounds; NaN is not."""
    has_type = isinstance(value, int) if name in INTEGERS else isinstance(value, int | float)
    return has_type and not isinstance(value, bool) and bounds[0] <= value <= bounds[1]
