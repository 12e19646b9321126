"""How a model's makers want it used: the values of `generation_config.json` beside its weights, for requests that leave a field out.

Only numbers that a request could send count; a folder without the file, a GGUF file or a file that is no JSON has none. Their names are
the request's: `max_new_tokens` is `max_completion_tokens` here, and as a default it lowers what an absent limit stands for.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

FILE_NAME = "generation_config.json"
MAX_FILE_BYTES = 2**20
SMALLEST = math.ulp(0.0)
BOUNDS = {
    "temperature": (0, 2),
    "top_k": (-1, 2**31),
    "top_p": (SMALLEST, 1),
    "min_p": (0, 1),
    "repetition_penalty": (SMALLEST, 1_000),
    "max_completion_tokens": (1, 2**31),
}
FILE_WORDS = {"max_completion_tokens": "max_new_tokens"}
INTEGERS = ("top_k", "max_completion_tokens")


def generation_defaults(path: str) -> dict[str, Any]:
    """The usable values of the model at `path`. Reads a file; never raises for what is in it."""
    file = Path(path) / FILE_NAME
    try:
        if not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:
            return {}
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(config, dict):
        return {}
    given = {name: config.get(FILE_WORDS.get(name, name)) for name in BOUNDS}
    return {name: value for name, value in given.items() if _is_within(value, name, BOUNDS[name])}


def _is_within(value: Any, name: str, bounds: tuple[float, float]) -> bool:
    """Whether it is a number within bounds, which NaN is not."""
    has_type = isinstance(value, int) if name in INTEGERS else isinstance(value, int | float)
    return has_type and not isinstance(value, bool) and bounds[0] <= value <= bounds[1]
