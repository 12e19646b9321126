"""The config.json of a model that takes media, as transformers reads it, and the inputs of encoders of sound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, Phi4MultimodalConfig, WhisperConfig

from engine.tokenizers.folder_files import read_object
from engine.ultravox_folder import AUDIO, TEXT, described, is_ultravox

MAKERS_PHI = "phi4mm"
"""`model_type` of Phi-4-multimodal in the layout of its makers' code, which has the sizes of its tower in itself: those
that transformers has by default."""
FEATURES, FRAMES_MASK, LENGTHS = "input_features", "feature_attention_mask", "frame_lengths"
"""What is made of a sound (engine/media/sound_inputs.py): spectrograms of windows, which frames are of the sound, and
how many of each window are."""
STEP = 2
"""Frames of a spectrogram, or states, that a convolution of Whisper's encoder, or a pooling, makes one of."""
SHARED = ("hidden_size", "num_attention_heads", "vision_config")
"""What is read of it; `vision_config`, if somebody has written one, as in the layout of transformers."""


def media_config(path: Path) -> Any:
    """Read a folder's description. Raises the errors of transformers."""
    values = read_object(path / "config.json")
    if values.get("model_type") != MAKERS_PHI:
        return AutoConfig.from_pretrained(path)
    return Phi4MultimodalConfig(**{name: values[name] for name in SHARED if name in values})


@dataclass(frozen=True, slots=True)
class SoundConfig:
    """The config.json of a model that hears."""

    kind: str
    """Its `model_type`."""
    tower: Any
    """The encoder's config."""
    text: Any
    """The text model's."""
    projector: Mapping[str, Any]
    """The fields of Ultravox's projector; {} of others."""


def sound_config(path: Path) -> SoundConfig:
    """Read a folder's description. Raises ModelLoadError for parts of Ultravox, and the errors of transformers."""
    values = read_object(path / "config.json")
    if not is_ultravox(values):
        config = AutoConfig.from_pretrained(path)
        return SoundConfig(config.model_type, config.audio_config, config.get_text_config(), {})
    values = described(path, values)
    tower = WhisperConfig(**values[AUDIO.config_field])
    text = AutoConfig.for_model(**{"model_type": "llama"} | values[TEXT.config_field])
    return SoundConfig(values["model_type"], tower, text, values["projector_config"])
