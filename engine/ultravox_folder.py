"""A folder of Ultravox: what its config.json says, and where the parts lie that it names instead of holding them.

Published folders hold a projector, mostly an encoder of sound too, and name the text model by its id on the hub
(https://github.com/fixie-ai/ultravox). The named part is looked for on this machine; nothing is fetched. No torch:
workers read what a model is for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from engine.api.errors import ModelLoadError
from engine.tokenizers.folder_files import read_object

ULTRAVOX = "UltravoxModel"
"""The architecture."""
KIND = "ultravox"
"""The `model_type`."""
PROJECTOR = {"hidden_size": 4096, "stack_factor": 8, "projector_act": "swiglu", "projector_ln_mid": False}
"""Fields of the projector, and what their makers' code has for one that is left out."""
KEPT = ("architectures", "model_type", "quantization_config", "compression_config", "dtype", "torch_dtype")
"""Other fields that mean what they do elsewhere."""
NOT_SERVED = ("audio_latency_block_size", "num_projector_layers")
"""Fields of towers and projectors of another form."""
OUTER = ("quantization_config", "compression_config", "tie_word_embeddings")
"""Fields of a larger model that hold for the text model within it."""
HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
STORED_FORMAT = "safetensors"
"""What `manage.py model pull` adds to the name of a folder, behind a colon."""
STORED_FILES = "files"
"""The folder in which the store has a model's files."""
SHOWN = 80
"""Characters of a value of the file in an error."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part that the folder holds, or names."""

    what: str
    id_field: str
    """Of its id on the hub."""
    config_field: str
    """Of its description."""
    prefix: str
    """How the names of its tensors begin in the folder of the whole."""


TEXT = Part("text model", "text_model_id", "text_config", "language_model.")
AUDIO = Part("encoder of sound", "audio_model_id", "audio_config", "audio_tower.")
WHISPER = "model.encoder."
"""How the names of an encoder's tensors begin in a folder of Whisper."""


def is_ultravox(values: Mapping[str, Any]) -> bool:
    """Return True for a config.json of Ultravox."""
    return values.get("model_type") == KIND


def described(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return a folder's config.json in the form of other models with a tower; that of another model as it is.

    The text model and the encoder are described within it, whether the folder holds or names them. The fields of the
    projector stand in `projector_config`, where no field of the text model has their names.

    Raises ModelLoadError for a part that is missing, or is not served.
    """
    if not is_ultravox(values):
        return values
    source = path / "config.json"
    for name in NOT_SERVED:
        if values.get(name):
            raise ModelLoadError(f"{source}: {name} is not served, got {str(values[name])[:SHOWN]!r}")
    projector = {name: values.get(name, default) for name, default in PROJECTOR.items()}
    for name in ("hidden_size", "stack_factor"):
        if type(projector[name]) is not int or projector[name] < 1:
            raise ModelLoadError(f"{source}: {name} must be a positive integer, got {str(projector[name])[:SHOWN]!r}")
    found = {name: values[name] for name in KEPT if name in values} | {"projector_config": projector}
    for part in (TEXT, AUDIO):
        config = values.get(part.config_field)
        is_here = isinstance(config, dict) and bool(config)
        found[part.config_field] = config if is_here else _described(part_folder(path, values, part))
    tower = found[AUDIO.config_field].get("model_type", "whisper")
    if tower != "whisper":
        raise ModelLoadError(f"{source}: the encoder of sound must be 'whisper', got {str(tower)[:SHOWN]!r}")
    return found


def part_folder(path: Path, values: Mapping[str, Any], part: Part) -> Path:
    """Return the folder of a part that another folder names. Raises ModelLoadError if it is not on this machine."""
    config = values.get(part.config_field)
    named = values.get(part.id_field) or (config.get("_name_or_path") if isinstance(config, Mapping) else None)
    if not isinstance(named, str) or not HUB_ID.fullmatch(named):
        raise ModelLoadError(
            f"{path / 'config.json'}: the folder describes no {part.what}, and names none by an id of the hub "
            f"({part.id_field}: {str(named)[:SHOWN]!r})"
        )
    for folder in _places(path.absolute(), named):
        if (folder / "config.json").is_file():
            return folder
    beside = path.parent / named.rpartition("/")[2]
    remedy = f"`manage.py model pull {named}`, or `model import` of its folder"
    if path.name == STORED_FILES:
        remedy = f"Bring it into the store, and then this model: {remedy}"
    else:
        remedy = f"Put its folder beside this one, as {beside}; or have both in the store: {remedy}"
    raise ModelLoadError(f"{path}: has no {part.what}, and names {named}, which is not on this machine. {remedy}")


def _places(path: Path, named: str) -> Iterator[Path]:
    """Yield where a named part may lie: in the folder, beside it, or in the store that the folder is in.

    The store has a model in `<name>/files`, and one that is being added in `.work/new/<name>/files`.
    """
    name = named.rpartition("/")[2]
    yield path / name
    yield path.parent / name
    for root in (path.parents[number] for number in (1, 3) if number < len(path.parents)):
        for stored in (name, f"{name}:{STORED_FORMAT}", named):
            yield root / quote(stored, safe="") / STORED_FILES


def _described(folder: Path) -> dict[str, Any]:
    """Return the description of a model, or that of the text model within a larger one."""
    config = read_object(folder / "config.json")
    text = config.get(TEXT.config_field)
    return text | {name: config[name] for name in OUTER if name in config} if isinstance(text, dict) else config
