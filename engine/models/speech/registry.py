"""Which family writes down the speech of a folder."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.model_kind import MOONSHINE, WHISPER, read_purpose
from engine.models.speech.model import SpeechModel
from engine.models.speech.moonshine import Moonshine
from engine.models.speech.whisper import Whisper

FAMILIES: dict[str, type[Whisper] | type[Moonshine]] = {WHISPER: Whisper, MOONSHINE: Moonshine}


def load_speech_model(path: Path, device: torch.device, dtype: torch.dtype) -> SpeechModel:
    """Load the model of a folder. Raises ModelLoadError."""
    speech = read_purpose(path).speech
    assert speech is not None
    return FAMILIES[speech.family].load(path, device, dtype)
