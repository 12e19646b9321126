"""The encoder that all families share: tables, layers of attention in both directions, norms. In plain torch.

Called by the encoder's runner with whole texts, one behind the other. There is no cache, and no text sees another.

Letters: T tokens, N texts of one length, L their length, E width, H heads, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from engine.models.encoder_config import EncoderActivation, EncoderConfig

FARTHEST_BUCKET = 128
"""The distance from which on all share the last bias (T5, https://arxiv.org/abs/1910.10683)."""

ACTIVATE: dict[EncoderActivation, Callable[[torch.Tensor], torch.Tensor]] = {
    EncoderActivation.GELU: functional.gelu,
    EncoderActivation.GELU_TANH: lambda x: functional.gelu(x, approximate="tanh"),
    EncoderActivation.RELU: functional.relu,
    EncoderActivation.SILU: functional.silu,
    EncoderActivation.TANH: torch.tanh,
}


@dataclass(frozen=True, slots=True)
class Affine:
    """A matrix with an optional bias: of a product, or, with one dimension, of a norm."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight, self.bias)

    def normalize(self, x: torch.Tensor, eps: float) -> torch.Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, eps)


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """The weights of a layer. qkv: (3E, E)   o: (E, E)   up: (I or 2I, E)   down: (E, I)

    `attention_norm` is None where the stream is normalised already, in the first layer of ModernBERT.
    """

    qkv: Affine
    o: Affine
    attention_norm: Affine | None
    up: Affine
    down: Affine
    mlp_norm: Affine


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """All weights of an encoder. `buckets`: (B, H), biases of attention by distance. None: the encoder has none."""

    embedding: torch.Tensor
    positions: torch.Tensor | None
    segments: torch.Tensor | None
    embedding_norm: Affine
    buckets: torch.Tensor | None
    layers: tuple[EncoderLayer, ...]
    final_norm: Affine | None


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of a step: their places and what their attention needs. Built once a step."""

    positions: torch.Tensor
    """(T,), from 0 in each text."""
    groups: tuple[torch.Tensor, ...]
    """(N, L), the rows of the texts of each length."""

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> Texts:
        by_length: dict[int, list[int]] = {}
        first = 0
        for length in lengths:
            by_length.setdefault(length, []).append(first)
            first += length
        positions = torch.cat([torch.arange(length) for length in lengths])
        groups = tuple(
            (torch.tensor(starts)[:, None] + torch.arange(length)).to(device) for length, starts in by_length.items()
        )
        return cls(positions.to(device), groups)


class Encoder:
    """A model that is ready to run."""

    def __init__(self, config: EncoderConfig, weights: EncoderWeights) -> None:
        self.config = config
        self._weights = weights
        self._activate = ACTIVATE[config.activation]

    @property
    def device(self) -> torch.device:
        return self._weights.embedding.device

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, segments: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Run the layers. token_ids, segments: (T,) int64, of texts of these `lengths`  ->  (T, E)."""
        config, weights = self.config, self._weights
        texts = Texts.of(lengths, self.device)
        hidden = weights.embedding[token_ids]
        if weights.segments is not None:
            hidden = hidden + weights.segments[segments]
        if weights.positions is not None:
            hidden = hidden + weights.positions[texts.positions + config.first_position]
        hidden = weights.embedding_norm.normalize(hidden, config.norm_eps)
        biases = self._distance_biases(max(lengths)) if weights.buckets is not None else None
        rotations = {theta: self._rotation(theta, texts.positions) for theta in dict.fromkeys(config.thetas)}
        for number, layer in enumerate(weights.layers):
            rotation = rotations[config.thetas[number]] if rotations else None
            window = config.windows[number] if config.windows else 0
            hidden = self._layer(layer, hidden, texts, rotation, window, biases)
        return hidden if weights.final_norm is None else weights.final_norm.normalize(hidden, config.norm_eps)

    def _layer(
        self,
        layer: EncoderLayer,
        hidden: torch.Tensor,
        texts: Texts,
        rotation: tuple[torch.Tensor, torch.Tensor] | None,
        window: int,
        biases: torch.Tensor | None,
    ) -> torch.Tensor:
        eps, has_input_norms = self.config.norm_eps, self.config.has_input_norms
        norm = layer.attention_norm
        normed = norm.normalize(hidden, eps) if has_input_norms and norm is not None else hidden
        hidden = hidden + layer.o(self._attention(layer.qkv(normed), texts, rotation, window, biases))
        if not has_input_norms and norm is not None:
            hidden = norm.normalize(hidden, eps)
        normed = layer.mlp_norm.normalize(hidden, eps) if has_input_norms else hidden
        hidden = hidden + layer.down(self._inner(layer.up(normed)))
        return hidden if has_input_norms else layer.mlp_norm.normalize(hidden, eps)

    def _inner(self, inner: torch.Tensor) -> torch.Tensor:
        if not self.config.is_gated:
            return self._activate(inner)
        gate, up = inner.chunk(2, dim=-1)
        return self._activate(gate) * up

    def _attention(
        self,
        qkv: torch.Tensor,
        texts: Texts,
        rotation: tuple[torch.Tensor, torch.Tensor] | None,
        window: int,
        biases: torch.Tensor | None,
    ) -> torch.Tensor:
        """Let each token attend to those of its text. qkv: (T, 3E)  ->  (T, E)"""
        q, k, v = qkv.view(len(qkv), 3, self.config.num_heads, self.config.head_size).unbind(1)
        if rotation is not None:
            q, k = _rotated(q, *rotation), _rotated(k, *rotation)
        attended = torch.empty_like(v)
        for rows in texts.groups:
            length = rows.shape[1]
            mask = biases[:, :length, :length] if biases is not None else self._window_mask(window, length)
            parts = [part[rows].transpose(1, 2) for part in (q, k, v)]  # (N, H, L, D)
            result = functional.scaled_dot_product_attention(*parts, attn_mask=mask)
            attended[rows] = result.transpose(1, 2)
        return attended.reshape(len(qkv), -1)

    def _window_mask(self, window: int, length: int) -> torch.Tensor | None:
        """Return which places see each other, (L, L); None: all do."""
        if not window or length <= window + 1:
            return None
        places = torch.arange(length, device=self.device)
        return (places[:, None] - places).abs() <= window

    def _rotation(self, theta: float, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines, each (T, 1, D/2) float32."""
        size = self.config.head_size
        frequencies = 1.0 / theta ** (torch.arange(0, size, 2, device=positions.device).float() / size)
        angles = (positions.float()[:, None] * frequencies)[:, None]
        return angles.cos(), angles.sin()

    def _distance_biases(self, length: int) -> torch.Tensor:
        """Return the biases of attention, (H, L, L), by buckets of distances as in T5 (both directions)."""
        buckets = self._weights.buckets
        assert buckets is not None
        places = torch.arange(length, device=self.device)
        distance = places - places[:, None]
        half = self.config.num_buckets // 2
        exact = half // 2
        far = distance.abs().float().clamp(min=1)
        wide = exact + (torch.log(far / exact) / math.log(FARTHEST_BUCKET / exact) * (half - exact)).long()
        near_or_wide = torch.where(distance.abs() < exact, distance.abs(), wide.clamp(max=half - 1))
        return buckets[near_or_wide + (distance > 0) * half].permute(2, 0, 1)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs that the two halves of each head make. x: (T, H, D)"""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
