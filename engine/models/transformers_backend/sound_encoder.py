"""The encoder of sound of a Hugging Face folder: tower and projector of transformers, without its text model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMultimodalLM
from transformers.masking_utils import create_bidirectional_mask

from engine.layers.embedding import EncodedMedia
from engine.models.transformers_backend.media_config import FEATURES, FRAMES_MASK, STEP
from engine.models.transformers_backend.media_encoder import call_between_parts, folder_model, without_text_model


class SoundEncoder:
    """A tower of Whisper's kind with its projector."""

    def __init__(self, model: Any, device: torch.device, dtype: torch.dtype) -> None:
        """`model`: Qwen2-Audio or Voxtral, of transformers."""
        self._model = model
        self._device = device
        self._dtype = dtype

    @classmethod
    def load(cls, path: Path, device: torch.device, dtype: torch.dtype) -> SoundEncoder:
        """Load the encoder of a folder. Raises ModelLoadError."""
        model = folder_model(path, dtype, AutoModelForMultimodalLM, "sound")
        return cls(without_text_model(model).to(device), device, dtype)

    def call_between_parts(self, call: Callable[[], None]) -> None:
        """Have this called before each part of the model."""
        call_between_parts(self._model, call)

    @torch.inference_mode()
    def encode(self, tensors: dict[str, torch.Tensor]) -> EncodedMedia:
        """Return the vectors of one sound, in their order: window by window, as each takes much memory."""
        windows = tensors[FEATURES].to(self._device, self._dtype)
        if FRAMES_MASK in tensors:
            return EncodedMedia(self._masked(windows, int(tensors[FRAMES_MASK].sum())))
        made = [self._model.get_audio_features(window[None]).pooler_output for window in windows]
        return EncodedMedia(torch.cat(made))

    def _masked(self, windows: torch.Tensor, num_frames: int) -> torch.Tensor:
        """Return the vectors of a sound of so many frames: the rest of its window is not seen.

        Method: transformers, Qwen2AudioModel.forward.
        """
        tower, projector = self._model.model.audio_tower, self._model.model.multi_modal_projector
        num_states = (num_frames - 1) // STEP + 1  # behind the second convolution
        num_vectors = (num_states - 2) // STEP + 1  # behind the pooling
        length = tower.config.max_source_positions
        mask = create_bidirectional_mask(
            config=tower.config,
            inputs_embeds=windows.new_zeros(1, length, 1),
            attention_mask=(torch.arange(length, device=self._device) < num_states)[None].long(),
        )
        states = tower(windows, attention_mask=mask).last_hidden_state
        vectors: torch.Tensor = projector(states)[0, :num_vectors]
        return vectors
