"""The encoder of images of Phi-4-multimodal, whose tower and projector are a part of its embedding in transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from transformers.models.phi4_multimodal.modeling_phi4_multimodal import Phi4MultimodalImageEmbedding

from engine.api.errors import ModelLoadError
from engine.layers.embedding import EncodedMedia
from engine.models.transformers_backend.media_config import media_config
from engine.models.transformers_backend.media_encoder import call_between_parts

PREFIX = "model.embed_tokens_extend.image_embed."
MAKERS_NAMES = {
    "glb_GN": "global_img_feature_extensor",
    "sub_GN": "sub_img_feature_extensor",
    "img_projection.0": "img_projection_up",
    "img_projection.2": "img_projection_down",
}
"""Beginnings of names in the layout of the makers' code, with those of transformers."""


class PhiMediaEncoder:
    """A tower with its projector. `embedding` puts vectors of images into the embeddings of a prompt."""

    def __init__(self, embedding: Phi4MultimodalImageEmbedding, device: torch.device, dtype: torch.dtype) -> None:
        self._embedding = embedding
        self._token_id = embedding.config.vision_config.image_token_id
        self._device = device
        self._dtype = dtype

    @classmethod
    def load(
        cls, path: Path, values: Mapping[str, torch.Tensor], device: torch.device, dtype: torch.dtype
    ) -> PhiMediaEncoder:
        """Build the encoder of a folder. `values`: its tensors that begin with PREFIX. Raises ModelLoadError."""
        try:
            config = media_config(path)
            with torch.device("meta"):
                embedding = Phi4MultimodalImageEmbedding(config)
            placed = {_own_name(name.removeprefix(PREFIX)): value.to(device, dtype) for name, value in values.items()}
            embedding.load_state_dict(placed, assign=True)
        except (OSError, ValueError, RuntimeError, AttributeError, KeyError) as error:
            raise ModelLoadError(f"{path}: the image encoder cannot be loaded: {error}") from error
        see_both_ways(embedding)
        return cls(embedding.eval().requires_grad_(False), device, dtype)

    def call_between_parts(self, call: Callable[[], None]) -> None:
        """Have this called before each part of the model."""
        call_between_parts(self._embedding, call)

    @torch.inference_mode()
    def encode(self, tensors: dict[str, torch.Tensor]) -> EncodedMedia:
        """Return the vectors of one image, in the order of its tokens. `tensors`: what engine/media/phi_images.py made.

        The module wants a prompt: it gets one of the image's tokens alone.
        """
        placed = {name: tensor.to(self._device) for name, tensor in tensors.items()}
        num_vectors = int(placed.pop("num_vectors"))
        tokens = torch.full((1, num_vectors), self._token_id, device=self._device)
        empty = torch.zeros(1, num_vectors, self._embedding.config.hidden_size, device=self._device, dtype=self._dtype)
        return EncodedMedia(self._embedding(tokens, empty, **placed)[0])


def _own_name(name: str) -> str:
    """Return what transformers calls a tensor."""
    for makers, ours in MAKERS_NAMES.items():
        if name.startswith(makers):
            return ours + name.removeprefix(makers)
    return name


def see_both_ways(tower: torch.nn.Module) -> None:
    """Let patches of an image see each other. The tower of transformers 5.23 says that it sees forwards alone, which
    torch's attention takes at its word where no patch is masked; the makers' own sees both ways.
    """
    for part in tower.modules():
        if getattr(part, "is_causal", False):
            part.is_causal = False
