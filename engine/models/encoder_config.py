"""The description of an encoder: attention in both directions, the same in all layers but for windows and rotations.

A family (bert.py and its neighbours) makes one from the fields of a config.json. encoder.py builds from it, and knows
no family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.api.errors import ModelLoadError
from engine.models.fields import Fields


class EncoderActivation(StrEnum):
    """The activations of encoders, by transformers' names."""

    GELU = "gelu"
    GELU_TANH = "gelu_pytorch_tanh"
    RELU = "relu"
    SILU = "silu"
    TANH = "tanh"


ACTIVATIONS = {str(one): one for one in EncoderActivation} | {
    "gelu_new": EncoderActivation.GELU_TANH,
    "gelu_fast": EncoderActivation.GELU_TANH,
    "swiglu": EncoderActivation.SILU,
    "swish": EncoderActivation.SILU,
}


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The sizes and constants of an encoder."""

    architecture: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_position: int
    """Tokens of a text at most."""
    norm_eps: float
    activation: EncoderActivation = EncoderActivation.GELU
    first_position: int = 0
    """The row of the first token in the table of positions: RoBERTa and MPNet have rows of padding before it."""
    has_position_table: bool = True
    num_segments: int = 0
    """Rows of the table that tells the first text of a pair from the second; 0: there is none."""
    thetas: tuple[float, ...] = ()
    """The base of the rotation of queries and keys in each layer; empty: none rotates."""
    windows: tuple[int, ...] = ()
    """How far each layer sees on either side, 0 for everything; empty: all see everything."""
    num_buckets: int = 0
    """Distances that have a bias of attention of their own (MPNet); 0: there are no such biases."""
    is_gated: bool = False
    """The feed-forward multiplies the activated first half of its inner numbers by the second half."""
    has_input_norms: bool = False
    """Attention and feed-forward read the normalised stream (ModernBERT), instead of normalising their sum with it."""
    attention_bias: bool = True
    mlp_bias: bool = True
    norm_bias: bool = True

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    def check(self, source: str) -> EncoderConfig:
        """Return self. Raise ModelLoadError if sizes do not fit together."""
        if self.hidden_size % self.num_heads or (self.thetas and self.head_size % 2):
            kind = "an even multiple" if self.thetas else "a multiple"
            raise ModelLoadError(
                f"{source}: hidden_size must be {kind} of num_attention_heads {self.num_heads}, got {self.hidden_size}"
            )
        if self.max_position < 1:
            raise ModelLoadError(f"{source}: max_position_embeddings must be more than {self.first_position}")
        return self


@dataclass(frozen=True, slots=True)
class ScoreHead:
    """What makes a score of the states of a pair: pool, then dense, activation and norm, then one output."""

    dense: str
    """The name of its tensors in files, without `.weight`, as are the next ones."""
    output: str
    activation: EncoderActivation
    norm: str = ""
    pools_mean: bool = False
    """The mean of all states, instead of the first one."""
    has_dense_bias: bool = True


@dataclass(frozen=True, slots=True)
class EncoderFamily:
    """The architectures that one description reads, and the names of their tensors."""

    models: str
    """What people call the models that have these architectures."""
    hf_names: tuple[str, ...]
    """`architectures` in config.json of models whose states become vectors."""
    describe: Callable[[Fields], EncoderConfig]
    layer: str
    """How the names of layers begin, before the number."""
    tensors: Mapping[str, tuple[tuple[str, ...], ...]]
    """Our name, without the layer -> the spellings that files may have. A spelling of several names is their stack."""
    prefixes: tuple[str, ...] = ("",)
    """What may stand before all names but those of the head."""
    scorer_names: tuple[str, ...] = ()
    """`architectures` of rerankers."""
    head: Callable[[Fields], ScoreHead] | None = None
    ignored: tuple[str, ...] = ("pooler.", "cls.", "lm_head.")
    """Beginnings of the names of tensors, behind a prefix, that vectors do not need."""


def encoder_activation(fields: Fields, name: str = "hidden_act", default: str = "gelu") -> EncoderActivation:
    """Read an activation. Raises ModelLoadError."""
    value = fields.get(name)
    value = default if value is None else value
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise fields.wrong(name, f"one of {', '.join(ACTIVATIONS)}", value)
    return ACTIVATIONS[value]
