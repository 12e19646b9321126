"""The description of a decoder: its layers, one by one, and what surrounds them.

A family (llama.py and its neighbours) makes one from the fields of a file (fields.py). decoder.py builds from it, and
knows no family.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape
from engine.layers.rotary import Rotation

HEAD_SIZE_STEP = 4
"""Rotation works on pairs of numbers, attention on four at a time."""


class QkNorm(StrEnum):
    """The norm of queries and keys before they are rotated."""

    NONE = "none"
    HEAD = "head"
    """Each head by itself, all with one weight (Qwen3, Gemma 3)."""
    WIDTH = "width"
    """All heads of a token together (OLMo 2)."""


class Activation(StrEnum):
    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """One layer: attention, then feed-forward, each with norms before or after it."""

    attention: AttentionShape
    intermediate_size: int
    rotation: int = 0
    """The index in `ModelConfig.rotations`."""
    query_rotation: int | None = None
    """The index of the rotation of queries, if its magnitudes grow with the position (Ministral 3); None: as keys."""
    qk_norm: QkNorm = QkNorm.NONE
    qkv_bias: bool = False
    output_bias: bool = False
    activation: Activation = Activation.SILU
    is_gated: bool = True
    """The feed-forward multiplies the activated gate by a second projection."""
    mlp_bias: bool = False
    has_input_norms: bool = True
    """Attention and feed-forward read the normalised residual stream."""
    has_output_norms: bool = False
    """The outputs of attention and feed-forward are normalised before they are added to the stream."""
    has_value_norm: bool = False
    """The values of each head are normalised, without a weight, beside its queries and keys (QkNorm.HEAD)."""
    values_are_keys: bool = False
    """The projection of keys gives the values too."""
    input_size: int = 0
    """The size of the layer's own input of each token, added after the feed-forward (Gemma 4's per-layer embeddings);
    0: it has none."""
    has_scale: bool = False
    """The residual stream is multiplied by a number of the layer at its end."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes and constants of a decoder."""

    architecture: str
    vocab_size: int
    hidden_size: int
    layers: tuple[LayerConfig, ...]
    rotations: tuple[Rotation, ...]
    norm_eps: float
    max_position: int
    """The trained context in tokens."""
    tied_output: bool
    has_norm_bias: bool = False
    """Norms subtract the mean and add a bias (LayerNorm) instead of dividing by the root of the mean square."""
    embedding_scale: float = 1.0
    scales_vectors: bool = False
    """That scale is for vectors in place of tokens too."""
    residual_scale: float = 1.0
    """Multiplies what attention and feed-forward add to the residual stream."""
    logits_scale: float = 1.0
    logits_softcap: float = 0.0
    """Logits become cap * tanh(logits / cap); 0: no cap."""
    input_vocab_size: int = 0
    """The rows of the table of layers' own inputs; 0: there is none."""

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def attention_shape(self) -> AttentionShape:
        """The heads of the first layer."""
        return self.layers[0].attention

    @property
    def intermediate_size(self) -> int:
        """The largest of all layers."""
        return max(layer.intermediate_size for layer in self.layers)

    @property
    def input_size(self) -> int:
        """The size of the layers' own inputs together."""
        return sum(layer.input_size for layer in self.layers)

    @property
    def cpu_only(self) -> str:
        """What a CUDA device cannot compute, for people; "" if it computes all."""
        if len({(layer.attention.num_kv_heads, layer.attention.head_size) for layer in self.layers}) > 1:
            return "layers with different heads"
        marks = {
            "layers that share keys and values": any(not layer.attention.has_keys for layer in self.layers),
            "norms of values": any(layer.has_value_norm for layer in self.layers),
            "inputs of single layers": self.input_size > 0,
            "scales of layers": any(layer.has_scale for layer in self.layers),
        }
        return next((name for name, is_there in marks.items() if is_there), "")

    def opened(self, length: int) -> ModelConfig:
        """Return the description of the model with a context of `length` tokens."""
        return replace(self, rotations=tuple(rotation.opened(length) for rotation in self.rotations))

    def check(self, source: str) -> ModelConfig:
        """Return self. Raise ModelLoadError if sizes do not fit together."""
        for shape in dict.fromkeys(layer.attention for layer in self.layers):
            if shape.num_heads % shape.num_kv_heads:
                raise ModelLoadError(
                    f"{source}: {shape.num_heads} heads cannot share {shape.num_kv_heads} kv heads evenly"
                )
            if shape.head_size % HEAD_SIZE_STEP:
                raise ModelLoadError(
                    f"{source}: the head size must be a multiple of {HEAD_SIZE_STEP}, got {shape.head_size}"
                )
        for number, layer in enumerate(self.layers):
            self._check_shared_keys(source, number, layer.attention)
        for rotation in self.rotations:
            rotation.check(source)
        return self

    def _check_shared_keys(self, source: str, number: int, shape: AttentionShape) -> None:
        """Raise ModelLoadError if a layer would read the keys of another one as they do not lie in the cache."""
        if shape.source is None:
            return
        own = self.layers[shape.source].attention
        assert own.has_keys
        assert own.window == shape.window
        if (own.num_kv_heads, own.head_size) != (shape.num_kv_heads, shape.head_size):
            raise ModelLoadError(
                f"{source}: layer {number} reads the keys of layer {shape.source}, so both must have the same kv heads "
                f"and head size; they have {shape.num_kv_heads} of {shape.head_size}, and {own.num_kv_heads} of "
                f"{own.head_size}"
            )
