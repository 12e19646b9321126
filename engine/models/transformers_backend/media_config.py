"""The config.json of a model that takes media, as transformers reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, Phi4MultimodalConfig

from engine.tokenizers.folder_files import read_object

MAKERS_PHI = "phi4mm"
"""`model_type` of Phi-4-multimodal in the layout of its makers' code, which has the sizes of its tower in itself: those
that transformers has by default."""
SHARED = ("hidden_size", "num_attention_heads", "vision_config")
"""What is read of it; `vision_config`, if somebody has written one, as in the layout of transformers."""


def media_config(path: Path) -> Any:
    """Read a folder's description. Raises the errors of transformers."""
    values = read_object(path / "config.json")
    if values.get("model_type") != MAKERS_PHI:
        return AutoConfig.from_pretrained(path)
    return Phi4MultimodalConfig(**{name: values[name] for name in SHARED if name in values})
