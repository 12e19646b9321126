"""The encoder of sound of Ultravox: Whisper's encoder of transformers, and a projector.

The encoder sees sounds shorter than its window as they are, and not what fills up the last window of a longer one. The
projector joins states that follow each other. Method: https://github.com/fixie-ai/ultravox, ultravox_model.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.activations import ACT2FN
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from engine.api.errors import ModelLoadError
from engine.layers.embedding import EncodedMedia
from engine.models.transformers_backend.media_config import FEATURES, LENGTHS, STEP, SoundConfig, sound_config
from engine.models.transformers_backend.media_encoder import call_between_parts, loaded_quietly
from engine.ultravox_folder import AUDIO, WHISPER

PROJECTOR = "multi_modal_projector."
PREFIXES = (PROJECTOR, AUDIO.prefix, WHISPER)
"""Beginnings of the names of tensors: of the projector, of the encoder, and of the encoder in Whisper's own folder."""
SWIGLU = "swiglu"
EPSILON = 1e-6


class UltravoxEncoder:
    """Whisper's encoder with Ultravox's projector."""

    def __init__(self, tower: WhisperEncoder, projector: Projector, device: torch.device, dtype: torch.dtype) -> None:
        self._tower = tower
        self._projector = projector
        self._device = device
        self._dtype = dtype

    @classmethod
    def load(
        cls, path: Path, tensors: dict[str, torch.Tensor], device: torch.device, dtype: torch.dtype
    ) -> UltravoxEncoder:
        """Build the encoder of a folder. `tensors`: whose names begin as PREFIXES say. Raises ModelLoadError."""
        with loaded_quietly(path, "sound"):
            config = sound_config(path)
            with torch.device("meta"):
                tower, projector = WhisperEncoder(config.tower), Projector(config)
            for module, prefixes in ((tower, (AUDIO.prefix, WHISPER)), (projector, (PROJECTOR,))):
                own = ((name, prefix) for prefix in prefixes for name in tensors if name.startswith(prefix))
                named = {name.removeprefix(prefix): tensors[name].to(device, dtype) for name, prefix in own}
                _fill(path, module, named)
        return cls(tower, projector, device, dtype)

    def call_between_parts(self, call: Callable[[], None]) -> None:
        """Have this called before each part of the encoder."""
        for module in (self._tower, self._projector):
            call_between_parts(module, call)

    @torch.inference_mode()
    def encode(self, tensors: dict[str, torch.Tensor]) -> EncodedMedia:
        """Return the vectors of one sound, in their order: window by window, as each takes much memory."""
        lengths = tensors[LENGTHS].tolist()
        windows = zip(tensors[FEATURES], lengths, strict=True)
        return EncodedMedia(torch.cat([self._encoded(window[None], num_frames) for window, num_frames in windows]))

    def _encoded(self, frames: torch.Tensor, num_frames: int) -> torch.Tensor:
        """Return the vectors of a window. frames: (1, bands, F), of which the first `num_frames` are of the sound."""
        tower = self._tower
        states = functional.gelu(tower.conv1(frames.to(self._device, self._dtype)))
        states = functional.gelu(tower.conv2(states)).permute(0, 2, 1)  # (1, T, E)
        length, num_states = states.shape[1], -(-num_frames // STEP)
        states = states + tower.embed_positions.weight[:length]
        is_seen = (torch.arange(length, device=self._device) < num_states)[None, None, None]
        for layer in tower.layers:
            states = layer(states, is_seen if num_states < length else None)
        # NOTE: states behind the sound are joined with its last ones, as the projector was trained with them.
        vectors: torch.Tensor = self._projector(tower.layer_norm(states))[0]
        return vectors[: -(-num_states // self._projector.stack)]


class Projector(nn.Module):
    """What makes vectors of the text model's width of states that are stacked. Names are those of the folder."""

    def __init__(self, config: SoundConfig) -> None:
        super().__init__()
        fields, width = config.projector, config.text.hidden_size
        self.stack: int = fields["stack_factor"]
        stacked, inner = config.tower.d_model * self.stack, fields["hidden_size"]
        self._act = None if fields["projector_act"] == SWIGLU else ACT2FN[fields["projector_act"]]
        joined = inner // 2 if self._act is None else inner
        self.ln_pre = nn.RMSNorm(stacked, eps=EPSILON)
        self.linear_1 = nn.Linear(stacked, inner, bias=False)
        self.linear_2 = nn.Linear(joined, width, bias=False)
        has_middle = fields["projector_ln_mid"] is True
        self.ln_mid = nn.RMSNorm(joined, eps=EPSILON) if has_middle else nn.Identity()
        self.ln_post = nn.Identity() if has_middle else nn.RMSNorm(width, eps=EPSILON)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return vectors (B, ceil(T / stack), E) of states (B, T, C). Zeros fill the last stack."""
        states = functional.pad(states, (0, 0, 0, -states.shape[1] % self.stack))
        inner = self.linear_1(self.ln_pre(states.reshape(len(states), -1, states.shape[2] * self.stack)))
        if self._act is None:
            values, gate = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * values
        else:
            inner = self._act(inner)
        projected: torch.Tensor = self.ln_post(self.linear_2(self.ln_mid(inner)))
        return projected


def _fill(path: Path, module: Any, tensors: dict[str, torch.Tensor]) -> None:
    """Give a module its weights. Raises ModelLoadError for one that is missing or unknown."""
    found = module.load_state_dict(tensors, strict=False, assign=True)
    for problem, names in (("is missing", found.missing_keys), ("is not part of it", found.unexpected_keys)):
        if names:
            raise ModelLoadError(f"{path}: the sound encoder cannot be loaded: tensor {names[0]!r} {problem}")
    module.eval().requires_grad_(False)
