"""The fields of a model's file by our names, read from GGUF metadata or a Hugging Face config.json.

Every value is checked: a model's files are not trusted. Errors name the file and its own spelling of the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import combinations, zip_longest
from math import log, sqrt

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape
from engine.layers.rotary import KINDS, RopeScaling, Rotation

MAX_SIZE = 1 << 24
MAX_LAYERS = 1 << 12
SHOWN = 40
"""Characters of a name or value, and heads, of which an error tells."""
MAX_NUMBER = (2 - 2**-23) * 2.0**127
"""The largest of float32."""
ORIGINAL_LENGTH = "original_max_position_embeddings"
"""The trained context before it was stretched, in config.json beside the rules of rotations or within them."""
GROWTH = "attention.temperature_scale"
"""The growth of queries with their position in GGUF files (Ministral 3)."""
LOG_FACTOR = "rope.scaling.yarn_log_multiplier"
"""The growth of the divisor of yarn's factor on queries and keys there."""
OUTPUT = "output.weight"
"""The tensor of a GGUF file whose output has a matrix of its own."""

KEYS = {
    "hidden_size": ("hidden_size", "embedding_length"),
    "intermediate_size": ("intermediate_size", "feed_forward_length"),
    "num_layers": ("num_hidden_layers", "block_count"),
    "num_heads": ("num_attention_heads", "attention.head_count"),
    "num_kv_heads": ("num_key_value_heads", "attention.head_count_kv"),
    "head_size": ("head_dim", "attention.key_length"),
    "max_position": ("max_position_embeddings", "context_length"),
    "norm_eps": ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    "layer_norm_eps": ("layer_norm_eps", "attention.layer_norm_epsilon"),
    "any_norm_eps": ("norm_eps", "attention.layer_norm_epsilon"),
    "sliding_window": ("sliding_window", "attention.sliding_window"),
    "sliding_window_pattern": ("sliding_window_pattern", "attention.sliding_window_pattern"),
    "local_theta": ("rope_local_base_freq", "rope.freq_base_swa"),
    "embedding_scale": ("embedding_multiplier", "embedding_scale"),
    "residual_scale": ("residual_multiplier", "residual_scale"),
    "attention_scale": ("attention_multiplier", "attention.scale"),
    "logits_divisor": ("logits_scaling", "logit_scale"),
    "attention_softcap": ("attn_logit_softcapping", "attn_logit_softcapping"),
    "num_kv_shared_layers": ("num_kv_shared_layers", "attention.shared_kv_layers"),
    "own_input_size": ("hidden_size_per_layer_input", "embedding_length_per_layer_input"),
    "logits_softcap": ("final_logit_softcapping", "final_logit_softcapping"),
}
"""Our name -> the key in config.json, the key of GGUF after the architecture. Other names are used as they stand."""


class Fields:
    """A reader of one file. `is_gguf`: keys are those of GGUF, without the architecture before them."""

    def __init__(
        self,
        source: str,
        values: Mapping[str, object],
        *,
        architecture: str,
        is_gguf: bool = False,
        vocab_size: int = 0,
        tensors: Set[str] = frozenset(),
    ) -> None:
        """`vocab_size`, `tensors`: as a GGUF file has them."""
        self.source = source
        self.values = values
        self.architecture = architecture
        self.is_gguf = is_gguf
        self._vocab_size = vocab_size
        self._tensors = tensors

    def key(self, name: str) -> str:
        return KEYS[name][self.is_gguf] if name in KEYS else name

    def get(self, name: str) -> object:
        return self.values.get(self.key(name))

    def with_values(self, values: Mapping[str, object]) -> Fields:
        """Return a reader of these values in the place of a folder's own."""
        return Fields(self.source, values, architecture=self.architecture)

    def size(self, name: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        """Read an integer. GGUF files may list it layer by layer (kv heads of Granite 4), always the same one."""
        value = self.get(name)
        if self.is_gguf and isinstance(value, list) and value and all(one == value[0] for one in value):
            value = value[0]
        value = default if value is None else value
        if type(value) is not int or not 1 <= value <= most:
            raise self.wrong(name, f"an integer from 1 to {most}", value)
        return value

    def sizes(self, name: str, num_layers: int) -> list[int]:
        """Read an integer for each layer, which a GGUF file may list."""
        values = self.get(name)
        if not self.is_gguf or not isinstance(values, list):
            return [self.size(name)] * num_layers
        if len(values) != num_layers or not all(type(value) is int and 1 <= value <= MAX_SIZE for value in values):
            raise self.wrong(name, f"{num_layers} integers from 1 to {MAX_SIZE}", values)
        return values

    def count(self, name: str) -> int:
        """Read an integer that may be 0, or absent for 0."""
        return self.size(name) if self.get(name) else 0

    def number(self, name: str, default: float | None = None) -> float:
        value = self.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_NUMBER:
            raise self.wrong(name, "a positive number", value)
        return float(value)

    def numbers(self, name: str) -> tuple[float, ...]:
        """Read a list of positive numbers."""
        values = self.get(name)
        if not isinstance(values, list) or len(values) > MAX_LAYERS:
            raise self.wrong(name, "a list of positive numbers", values)
        return tuple(Fields(self.source, {name: value}, architecture="").number(name) for value in values)

    def integers(self, name: str, most: int) -> tuple[int, ...]:
        """Read a list of at most so many positive integers; empty if it is absent."""
        values = self.get(name)
        if values is None:
            return ()
        if not isinstance(values, list) or len(values) > most:
            raise self.wrong(name, f"a list of {most} positive integers", values)
        return tuple(Fields(self.source, {name: value}, architecture="").size(name) for value in values)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        value = default if value is None else value
        if type(value) is not bool:
            raise self.wrong(name, "true or false", value)
        return value

    def expect(self, name: str, *wanted: object) -> None:
        """Raise ModelLoadError if the field has another value; None and an absent field are right."""
        value = self.get(name)
        if value is not None and value not in wanted:
            raise self.wrong(name, " or ".join(map(repr, wanted)), value)

    def wrong(self, name: str, expected: str, value: object) -> ModelLoadError:
        return ModelLoadError(f"{self.source}: {self.key(name)} must be {expected}, got {str(value)[:80]!r}")

    @property
    def vocab_size(self) -> int:
        return self._vocab_size or self.size("vocab_size")

    @property
    def num_layers(self) -> int:
        return self.size("num_layers", most=MAX_LAYERS)

    @property
    def max_position(self) -> int:
        return self.size("max_position")

    @property
    def tied_output(self) -> bool:
        return not self.has_tensor(OUTPUT) if self.is_gguf else self.flag("tie_word_embeddings")

    def has_tensor(self, name: str) -> bool:
        """Return True if a GGUF file has a tensor."""
        return name in self._tensors

    def attention_shape(self, scale: float | None = None) -> AttentionShape:
        """Read the heads; `scale` None: one over the root of the head size."""
        num_heads = self.size("num_heads")
        head_size = self.size("head_size", self.size("hidden_size") // num_heads or 1)
        if self.is_gguf and self.size("attention.value_length", head_size) != head_size:
            raise self.wrong("attention.value_length", f"the head size {head_size}", self.get("attention.value_length"))
        return AttentionShape(
            num_heads, self.size("num_kv_heads", num_heads), head_size, 1 / sqrt(head_size) if scale is None else scale
        )

    def rotation(self, head_size: int, kind: str = "") -> Rotation:
        """Read the rotation of heads. `kind`: of which layers, where config.json has several ("full_attention")."""
        return self._gguf_rotation(head_size) if self.is_gguf else self._hf_rotation(head_size, kind)

    def whole_rotation(self, head_size: int, theta: str) -> Rotation:
        """Return an unscaled rotation of whole heads, whose base is the field `theta`."""
        return Rotation(self.number(theta, 10000.0), head_size, head_size)

    def query_growth(self) -> tuple[float, int]:
        """Read by how much queries grow with their position, 0 if not, and at every how many positions they do."""
        if self.is_gguf:
            length = self.size("rope.scaling.original_context_length", self.size("max_position"))
            return (self.number(GROWTH) if self.get(GROWTH) else 0.0), length
        values = self.get("rope_parameters") or self.get("rope_scaling")
        rope = self.with_values(values if isinstance(values, dict) else {})
        if not rope.get("llama_4_scaling_beta"):
            return 0.0, 1
        return rope.number("llama_4_scaling_beta"), rope.size(ORIGINAL_LENGTH, self.size("max_position"))

    def local_rotation(self, head_size: int, theta: float) -> Rotation:
        """Return an unscaled rotation of the same share of each head."""
        return Rotation(theta, self._rotated_size(head_size), head_size)

    def windows(self, num_layers: int, pattern: int = 0) -> tuple[int, ...]:
        """Read the window of each layer, 0 for those that see everything.

        config.json may list `layer_types`, and a GGUF file which layers have the window. Without, every `pattern`th
        layer sees everything; 0: none does, 1: all do.
        """
        if self.get("sliding_window") in (None, 0):  # GGUF files of Phi-4 have 0
            return (0,) * num_layers
        window = self.size("sliding_window")
        kinds, marks = self.get("layer_types"), self.get("sliding_window_pattern")
        if self.is_gguf and isinstance(marks, list):
            if len(marks) != num_layers or not all(type(mark) is bool for mark in marks):
                raise self.wrong("sliding_window_pattern", f"{num_layers} times true or false", marks)
            return tuple(window if mark else 0 for mark in marks)
        if kinds is None:
            pattern = pattern if self.get("sliding_window_pattern") is None else self.size("sliding_window_pattern")
            return tuple(0 if pattern and (number + 1) % pattern == 0 else window for number in range(num_layers))
        known = {"sliding_attention": window, "full_attention": 0}
        if not isinstance(kinds, list) or len(kinds) != num_layers or not all(kind in (*known,) for kind in kinds):
            raise self.wrong("layer_types", f"{num_layers} of {', '.join(known)}", kinds)
        return tuple(known[kind] for kind in kinds)

    def _rotated_size(self, head_size: int) -> int:
        if self.is_gguf:
            size = self.size("rope.dimension_count", head_size)
        else:
            nested = self.get("rope_parameters")
            rope = self.with_values(nested if isinstance(nested, dict) else {})
            share = rope.number("partial_rotary_factor", self.number("partial_rotary_factor", 1.0))
            size = int(head_size * min(share, 2.0))
        if not 2 <= size <= head_size or size % 2:
            name = "rope.dimension_count" if self.is_gguf else "partial_rotary_factor"
            raise self.wrong(name, f"an even part of the head size {head_size}", self.get(name))
        return size

    def _gguf_rotation(self, head_size: int) -> Rotation:
        factor = self.number("rope.scaling.factor") if self.get("rope.scaling.factor") else 1.0
        kind = self.get("rope.scaling.type") or "none"
        # Of longrope, whose type llama.cpp does not name. Files of OLMo 3 have it beside yarn, with yarn's own value.
        if kind == "none" and self.get("rope.scaling.attn_factor") is not None:
            kind = "longrope"
        elif self.get("rope.scaling.type") is None and factor != 1.0:
            kind = "linear"
        if kind not in ("none", "linear", "yarn", "longrope"):
            raise self.wrong("rope.scaling.type", "none, linear, yarn or longrope", kind)
        scaling = RopeScaling()
        if kind != "none":
            scaling = RopeScaling(
                kind=str(kind),
                factor=factor,
                original_length=self.size("rope.scaling.original_context_length", self.size("max_position")),
                beta_fast=self.number("rope.scaling.yarn_beta_fast", 32.0),
                beta_slow=self.number("rope.scaling.yarn_beta_slow", 1.0),
                attention_factor=self._gguf_attention_factor(str(kind), factor),
            )
        return Rotation(self.number("rope.freq_base", 10000.0), self._rotated_size(head_size), head_size, scaling)

    def _gguf_attention_factor(self, kind: str, factor: float) -> float | None:
        """Read the factor on queries and keys. Files of Ministral 3 have the divisor of yarn's."""
        if kind == "longrope":
            return self.number("rope.scaling.attn_factor", 1.0)
        if kind != "yarn" or not self.get(LOG_FACTOR):
            return None
        growth = 0.1 * log(max(factor, 1.0))
        return (growth + 1) / (self.number(LOG_FACTOR) * growth + 1)

    def _hf_rotation(self, head_size: int, kind_of_layer: str) -> Rotation:
        """`rope_parameters` (new) holds theta too; `rope_scaling` (old) has it beside it."""
        values = self.get("rope_parameters") or self.get("rope_scaling") or {}
        if isinstance(values, dict) and kind_of_layer in values:
            values = values[kind_of_layer]
        if not isinstance(values, dict):
            raise self.wrong("rope_parameters", "an object", values)
        rope = self.with_values(values)
        theta = rope.number("rope_theta", self.number("rope_theta", 10000.0))
        kind = values.get("rope_type", values.get("type", "default"))
        if kind == "proportional":
            share = min(rope.number("partial_rotary_factor", 1.0), 1.0)
            return Rotation(theta, head_size, head_size, RopeScaling(kind, rope.number("factor", 1.0), share=share))
        size = self._rotated_size(head_size)
        kind = "longrope" if kind == "su" else kind
        if kind not in (*KINDS, "mrope"):
            raise rope.wrong("rope_type", f"one of {', '.join(KINDS)}", kind)
        rope.expect("truncate", True)
        if kind in ("default", "mrope"):
            return Rotation(theta, size, head_size)
        if kind == "longrope":
            return Rotation(theta, size, head_size, self._longrope(rope))
        scaling = RopeScaling(
            kind=kind,
            factor=rope.number("factor"),
            original_length=rope.size(ORIGINAL_LENGTH, self.size("max_position")),
            low_frequency_factor=rope.number("low_freq_factor", 1.0),
            high_frequency_factor=rope.number("high_freq_factor", 4.0),
            beta_fast=rope.number("beta_fast", 32.0),
            beta_slow=rope.number("beta_slow", 1.0),
            attention_factor=_attention_factor(rope),
        )
        return Rotation(theta, size, head_size, scaling)

    def _longrope(self, rope: Fields) -> RopeScaling:
        """Read the factors of Phi-3 and its successors; without a factor of attention it follows from the lengths."""
        length = self.size("max_position")
        original_length = rope.size(ORIGINAL_LENGTH, self.size(ORIGINAL_LENGTH, length))
        growth = rope.number("factor", length / original_length)
        factor = sqrt(1 + log(growth) / log(original_length)) if growth > 1 and original_length > 1 else 1.0
        return RopeScaling(
            kind="longrope",
            original_length=original_length,
            attention_factor=rope.number("attention_factor", factor),
            short_factors=rope.numbers("short_factor"),
            long_factors=rope.numbers("long_factor"),
        )


def integers(values: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Yield the integers of a description by their names, with those of objects in it."""
    for objects in (values, *(value for value in values.values() if isinstance(value, Mapping))):
        yield from ((name[:SHOWN], value) for name, value in objects.items() if type(value) is int)


def blamed(values: Mapping[str, object], expected: tuple[int, ...], found: tuple[int, ...]) -> str:
    """Say which fields of a description are sizes that a tensor should have and has not, alone or as heads by their
    size; "" if none is.
    """
    wrong = {size for size, other in zip_longest(expected, found) if size is not None and size != other and size > 1}
    fields = [(name, f"{name} {str(value)[:SHOWN]}", value) for name, value in integers(values) if value > 1]
    ones = [text for _, text, value in fields if value in wrong]
    heads = [(text, value) for name, text, value in fields if "head" in name or name.endswith("key_length")][:SHOWN]
    pairs = [f"{first[0]} x {second[0]}" for first, second in combinations(heads, 2) if first[1] * second[1] in wrong]
    return f"; its description says {' and '.join([*ones, *pairs][:3])}" if ones or pairs else ""


def _attention_factor(rope: Fields) -> float | None:
    """Read the factor of yarn on queries and keys: its value, the quotient of two given by `mscale`, or None."""
    if rope.get("attention_factor") is not None:
        return rope.number("attention_factor")
    if not rope.get("mscale") or not rope.get("mscale_all_dim"):
        return None
    growth = 0.1 * log(max(rope.number("factor"), 1.0))
    return (rope.number("mscale") * growth + 1) / (rope.number("mscale_all_dim") * growth + 1)
