"""The configuration of a decoder-only model, read from GGUF metadata or a Hugging Face config.json.

Every value is checked: a model's files are not trusted. Knows no family; family differences are passed in as
`FamilyTraits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, sqrt

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape
from engine.layers.rotary import KINDS, RopeScaling

MAX_SIZE = 1 << 24
HEAD_SIZE_STEP = 4
"""Rotation works on pairs of numbers, attention on four at a time."""


@dataclass(frozen=True, slots=True)
class FamilyTraits:
    """The differences between families of the shared decoder.

    A new family is a file like qwen.py and a line in registry.py:

    FAMILY = FamilyTraits(gguf_names=("qwen2",), hf_names=("Qwen2ForCausalLM",), qkv_bias=True)
    """

    gguf_names: tuple[str, ...]
    """`general.architecture` in GGUF files."""
    hf_names: tuple[str, ...]
    """`architectures` in config.json."""
    gguf_adjacent_pairs: bool = False
    """GGUF files of this family store the rows of q and k with rotated pairs adjacent."""
    qkv_bias: bool = False
    """The fused projection has a bias, even if the metadata does not say so."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes and constants of a decoder. `max_position` is the trained context in tokens."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling
    max_position: int
    tied_output: bool
    qkv_bias: bool
    output_bias: bool

    @property
    def attention_shape(self) -> AttentionShape:
        return AttentionShape(self.num_heads, self.num_kv_heads, self.head_size, 1 / sqrt(self.head_size))


class _Fields:
    """A reader that checks untrusted values; errors name the file and the key."""

    def __init__(self, source: str, values: Mapping[str, object]) -> None:
        self._source = source
        self._values = values

    def get(self, key: str) -> object:
        return self._values.get(key)

    def size(self, key: str, default: int | None = None) -> int:
        value = self._values.get(key)
        value = default if value is None else value
        if type(value) is not int or not 1 <= value <= MAX_SIZE:
            raise self.wrong(key, f"an integer from 1 to {MAX_SIZE}", value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._values.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
            raise self.wrong(key, "a positive number", value)
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._values.get(key)
        value = default if value is None else value
        if type(value) is not bool:
            raise self.wrong(key, "true or false", value)
        return value

    def wrong(self, key: str, expected: str, value: object) -> ModelLoadError:
        return ModelLoadError(f"{self._source}: {key} must be {expected}, got {str(value)[:80]!r}")


def config_from_gguf(
    source: str, metadata: Mapping[str, object], traits: FamilyTraits, tied_output: bool, vocab_size: int
) -> ModelConfig:
    """Read `<architecture>.*`. `vocab_size` is the number of rows of the embedding. Raises ModelLoadError."""
    architecture = str(metadata["general.architecture"])
    fields = _Fields(source, {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()})
    num_heads = fields.size("attention.head_count")
    hidden_size = fields.size("embedding_length")
    head_size = fields.size("attention.key_length", hidden_size // num_heads or 1)
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.size(key, head_size) != head_size:
            raise fields.wrong(key, f"the head size {head_size}", fields.get(key))
    max_position = fields.size("context_length")
    return _checked(
        source,
        ModelConfig(
            architecture=architecture,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=fields.size("feed_forward_length"),
            num_layers=fields.size("block_count"),
            num_heads=num_heads,
            num_kv_heads=fields.size("attention.head_count_kv", num_heads),
            head_size=head_size,
            norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
            rope_theta=fields.number("rope.freq_base", 10000.0),
            rope_scaling=_gguf_scaling(fields, max_position),
            max_position=max_position,
            tied_output=tied_output,
            qkv_bias=traits.qkv_bias,
            output_bias=False,
        ),
    )


def _gguf_scaling(fields: _Fields, max_position: int) -> RopeScaling:
    kind = fields.get("rope.scaling.type") or "none"
    if kind == "none":
        return RopeScaling()
    if kind not in ("linear", "yarn"):
        raise fields.wrong("rope.scaling.type", "none, linear or yarn", kind)
    return RopeScaling(
        kind=str(kind),
        factor=fields.number("rope.scaling.factor", 1.0),
        original_length=fields.size("rope.scaling.original_context_length", max_position),
    )


def config_from_hf(source: str, values: Mapping[str, object], traits: FamilyTraits, architecture: str) -> ModelConfig:
    """Read a config.json. Raises ModelLoadError."""
    fields = _Fields(source, values)
    num_heads = fields.size("num_attention_heads")
    hidden_size = fields.size("hidden_size")
    for key, wanted in (("hidden_act", "silu"), ("mlp_bias", False), ("use_sliding_window", False)):
        if fields.get(key) not in (None, wanted):
            raise fields.wrong(key, repr(wanted), fields.get(key))
    max_position = fields.size("max_position_embeddings")
    if fields.get("sliding_window") is not None and "use_sliding_window" not in values:
        # Within one window a sliding attention is a full one.
        max_position = min(max_position, fields.size("sliding_window"))
    attention_bias = fields.flag("attention_bias")
    theta, scaling = _hf_rope(source, fields, max_position)
    return _checked(
        source,
        ModelConfig(
            architecture=architecture,
            vocab_size=fields.size("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=fields.size("intermediate_size"),
            num_layers=fields.size("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=fields.size("num_key_value_heads", num_heads),
            head_size=fields.size("head_dim", hidden_size // num_heads or 1),
            norm_eps=fields.number("rms_norm_eps"),
            rope_theta=theta,
            rope_scaling=scaling,
            max_position=max_position,
            tied_output=fields.flag("tie_word_embeddings"),
            qkv_bias=traits.qkv_bias or attention_bias,
            output_bias=attention_bias,
        ),
    )


def _hf_rope(source: str, fields: _Fields, max_position: int) -> tuple[float, RopeScaling]:
    """`rope_parameters` (new) holds theta too; `rope_scaling` (old) has it beside it."""
    values = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if not isinstance(values, dict):
        raise fields.wrong("rope_parameters", "an object", values)
    rope = _Fields(source, values)
    theta = rope.number("rope_theta", fields.number("rope_theta", 10000.0))
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in KINDS:
        raise rope.wrong("rope_type", f"one of {', '.join(KINDS)}", kind)
    if kind == "default":
        return theta, RopeScaling()
    return theta, RopeScaling(
        kind=kind,
        factor=rope.number("factor"),
        original_length=rope.size("original_max_position_embeddings", max_position),
        low_frequency_factor=rope.number("low_freq_factor", 1.0),
        high_frequency_factor=rope.number("high_freq_factor", 4.0),
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        attention_factor=rope.number("attention_factor") if values.get("attention_factor") is not None else None,
    )


def _checked(source: str, config: ModelConfig) -> ModelConfig:
    """Refuse sizes that do not fit together."""
    if config.num_heads % config.num_kv_heads:
        raise ModelLoadError(f"{source}: {config.num_heads} heads cannot share {config.num_kv_heads} kv heads evenly")
    if config.head_size % HEAD_SIZE_STEP:
        raise ModelLoadError(f"{source}: the head size must be a multiple of {HEAD_SIZE_STEP}, got {config.head_size}")
    scaling = config.rope_scaling
    if scaling.kind == "llama3" and scaling.high_frequency_factor <= scaling.low_frequency_factor:
        raise ModelLoadError(f"{source}: high_freq_factor must be above low_freq_factor")
    if scaling.kind == "yarn" and config.rope_theta <= 1:
        raise ModelLoadError(f"{source}: rope_theta must be above 1, got {config.rope_theta}")
    return config
