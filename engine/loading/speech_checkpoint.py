"""The files of a model that writes down speech, opened and described, with none of its weights read."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from engine.api.errors import ModelLoadError
from engine.loading.safetensors_file import SafetensorsFolder, read_config
from engine.model_kind import WHISPER, SpeechPurpose

EXTRACTOR = "preprocessor_config.json"
POSITIONS = {WHISPER: "max_target_positions"}
LAYERS = {WHISPER: "decoder_layers"}


@dataclass(frozen=True, slots=True)
class SpeechCheckpoint:
    """What the files say."""

    architecture: str
    num_layers: int
    """Of the decoder."""
    max_position: int
    """Tokens of a window."""
    width: int
    num_weights: int
    files: tuple[Path, ...]
    format: str = ""


def open_speech(path: Path, speech: SpeechPurpose) -> SpeechCheckpoint:
    """Open a folder. Raises ModelLoadError."""
    config = read_config(path)
    if config.get("quantization_config"):
        raise ModelLoadError(f"{path}: a quantised model of speech is not served; take the one it was made of")
    if not (path / EXTRACTOR).is_file():
        raise ModelLoadError(f"{path}: holds no {EXTRACTOR}, which says how sound becomes input; take the makers' file")
    folder = SafetensorsFolder.open(path)
    try:
        num_weights = sum(prod(folder.shape(name)) for name in folder.names)
    finally:
        folder.close()

    def number(name: str) -> int:
        value = config.get(name)
        if type(value) is not int or value < 1:
            raise ModelLoadError(f"{path / 'config.json'}: {name} must be a positive integer, got {str(value)[:80]!r}")
        return value

    family = speech.family
    return SpeechCheckpoint(
        architecture=family,
        num_layers=number(LAYERS.get(family, "decoder_num_hidden_layers")),
        max_position=number(POSITIONS.get(family, "max_position_embeddings")),
        width=number("d_model" if family == WHISPER else "hidden_size"),
        num_weights=num_weights,
        files=tuple(folder.files),
    )
