"""What a model's files say, asked of the engine."""

from __future__ import annotations

import json
from pathlib import Path

from chat.engine_check import engine_check
from chat.model_store.errors import StoreError
from engine.api import ModelDescription

INSPECTION_S = 300


def description_of(path: Path) -> ModelDescription:
    """Describe the model at `path`, a GGUF file or a folder. Raises StoreError if it cannot be served."""
    is_fine, output = engine_check("engine.core.model_description", str(path), path.name, INSPECTION_S)
    if not is_fine:
        raise StoreError(output)
    return ModelDescription(**json.loads(output))
