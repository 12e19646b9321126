"""`quantization_config` of a config.json: the format of a folder's weights and the layouts that read it.

Which matrices are quantised shows in their tensors, so lists of modules that are not (`ignore`,
`modules_to_not_convert`) need not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.api.errors import ModelLoadError
from engine.loading.integer_layouts import Awq, Gptq, PackedIntegers
from engine.loading.layout import Layout
from engine.loading.number_layouts import BitsAndBytes4, EightBit, Mxfp4, Mxfp4Blocks
from engine.quantization.folder_blocks import BLOCK

REMEDY = "use the original or a GGUF file"
MAX_GROUP = 1 << 24
CHANNEL = -1
"""A group that is a whole row."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the matrices of a folder are quantised. described: for people, such as "AWQ, 4 bits in groups of 128"."""

    described: str
    layouts: tuple[Layout, ...]


def take_quantization(source: str, values: dict[str, Any]) -> Quantization | None:
    """Take the description of quantised weights out of a config.json; None if it has none.

    Raises ModelLoadError that names what is not served, and what is.
    """
    found: object = None
    text = values.get("text_config")
    for owner in (values, text if isinstance(text, dict) else {}):
        for key in ("quantization_config", "compression_config"):
            value = owner.pop(key, None)
            found = found if value is None else value
    if found is None:
        return None
    fields = _Fields(source, found)
    method = fields.get("quant_method")
    if not isinstance(method, str) or method not in READERS:
        shown = str(method)[:80]
        raise ModelLoadError(
            f"{source}: weights quantised by {shown!r} cannot be served; supported are {', '.join(READERS)}; {REMEDY}"
        )
    return READERS[method](fields)


class _Fields:
    """The fields of an object in config.json."""

    def __init__(self, source: str, values: object, name: str = "quantization_config") -> None:
        self._where = f"{source}: {name}"
        self._source = source
        if not isinstance(values, Mapping):
            raise ModelLoadError(f"{self._where} must be an object, got {str(values)[:80]!r}")
        self._values = values

    def get(self, name: str, default: object = None) -> object:
        value = self._values.get(name)
        return default if value is None else value

    def one_of(self, name: str, choices: tuple, default: object = None) -> Any:
        value = self.get(name, default)
        if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices):
            raise self.wrong(name, f"must be {' or '.join(map(repr, choices))}", value)
        return value

    def group_size(self, default: int | None = None) -> int:
        value = self.get("group_size", default)
        if type(value) is not int or (value != CHANNEL and (not 0 < value <= MAX_GROUP or value % BLOCK)):
            raise self.wrong("group_size", f"must be {CHANNEL} or a multiple of {BLOCK} up to {MAX_GROUP}", value)
        return value

    def pair(self, name: str) -> tuple[int, int] | None:
        value = self.get(name)
        if value is None:
            return None
        sizes = value if isinstance(value, list) and len(value) == 2 else []
        if not sizes or not all(type(one) is int and 0 < one <= MAX_GROUP for one in sizes):
            raise self.wrong(name, f"must be two numbers from 1 to {MAX_GROUP}", value)
        if sizes[1] % BLOCK:
            raise self.wrong(name, f"must have a width that is a multiple of {BLOCK}", value)
        return sizes[0], sizes[1]

    def objects(self, name: str) -> Iterator[_Fields]:
        values = self.get(name)
        if not isinstance(values, Mapping) or not values:
            raise self.wrong(name, "must be an object with entries", values)
        return (_Fields(self._source, value, f"{name}.{str(key)[:80]}") for key, value in values.items())

    def inner(self, name: str) -> _Fields:
        return _Fields(self._source, self.get(name), name)

    def wrong(self, name: str, expected: str, value: object) -> ModelLoadError:
        return ModelLoadError(f"{self._where}.{name} {expected}, got {str(value)[:80]!r}; {REMEDY}")


def _awq(fields: _Fields) -> Quantization:
    fields.one_of("bits", (4,))
    fields.one_of("zero_point", (True,), True)
    version = fields.get("version", "gemm")
    if str(version).lower() != "gemm":
        raise fields.wrong("version", "must be 'gemm'", version)
    size = fields.group_size()
    return Quantization(f"AWQ, 4 bits{_in_groups(size)}", (Awq(size),))


def _gptq(fields: _Fields) -> Quantization:
    bits, size = fields.one_of("bits", (4, 8)), fields.group_size()
    version = fields.one_of("checkpoint_format", ("gptq", "gptq_v2"), "gptq")
    dynamic = fields.get("dynamic")
    if isinstance(dynamic, Mapping) and not all(str(rule).startswith("-:") for rule in dynamic):
        raise fields.wrong("dynamic", "must give all modules the same bits", dynamic)
    order = ", by activation order" if fields.one_of("desc_act", (True, False), False) else ""
    described = f"GPTQ, {bits} bits{_in_groups(size)}{order}"
    return Quantization(described, (Gptq(bits, size, zero_offset=int(version == "gptq")),))


def _fp8(fields: _Fields) -> Quantization:
    fields.one_of("fmt", ("e4m3",), "e4m3")
    block = fields.pair("weight_block_size")
    return Quantization(f"FP8 (e4m3){_in_blocks(block)}", (EightBit(block),))


def _modelopt(fields: _Fields) -> Quantization:
    fields.one_of("quant_algo", ("FP8",))
    return Quantization("FP8 (e4m3)", (EightBit(),))


def _mxfp4(fields: _Fields) -> Quantization:
    return Quantization("MXFP4", (Mxfp4Blocks(),))


def _bitsandbytes(fields: _Fields) -> Quantization:
    if fields.one_of("load_in_4bit", (True, False), False):
        kind = fields.one_of("bnb_4bit_quant_type", ("nf4", "fp4"), "fp4")
        fields.one_of("bnb_4bit_quant_storage", ("uint8",), "uint8")
        return Quantization(f"bitsandbytes {kind.upper()}", (BitsAndBytes4(),))
    fields.one_of("load_in_8bit", (True,))
    return Quantization("bitsandbytes INT8", (EightBit(),))


def _compressed(fields: _Fields) -> Quantization:
    """compressed-tensors: groups of modules with a scheme each; a layout for each of their formats."""
    sparsity = fields.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("format", "dense") != "dense":
        raise fields.wrong("sparsity_config", "must have the format 'dense'", sparsity.get("format"))
    if fields.get("transform_config"):
        raise fields.wrong("transform_config", "must be empty: rotated weights need rotated activations", "rotations")
    common = fields.get("format")
    packed: list[tuple[int, int]] = []
    blocks: list[tuple[int, int] | None] = []
    layouts: list[Layout] = []
    described: list[str] = []
    for group in fields.objects("config_groups"):
        if common in (None, "mixed-precision") or group.get("format"):
            kind = group.one_of("format", COMPRESSED)
        else:
            kind = fields.one_of("format", COMPRESSED)
        weights = group.inner("weights")
        strategy = weights.one_of("strategy", ("tensor", "channel", "group", "block"), "tensor")
        size = weights.group_size() if strategy == "group" else CHANNEL
        if kind == "pack-quantized":
            packed.append((weights.one_of("num_bits", (4, 8)), size))
            described.append(f"{kind}, {packed[-1][0]} bits{_in_groups(size)}")
        elif kind == "mxfp4-pack-quantized":
            layouts.append(Mxfp4())
            described.append(kind)
        else:
            weights.one_of("num_bits", (8,))
            block = weights.pair("block_structure") if strategy == "block" else None
            blocks.append((1, size) if size > 0 else block)
            described.append(f"{kind}, 8 bits{_in_groups(size) if size > 0 else _in_blocks(block)}")
    if blocks:
        sizes = {block for block in blocks if block is not None}
        if len(sizes) > 1:
            raise fields.wrong("config_groups", "must have scales of blocks of one size", sorted(sizes))
        layouts.append(EightBit(*sizes))
    if packed:
        layouts.append(PackedIntegers(*(tuple(sorted(set(values))) for values in zip(*packed, strict=True))))
    return Quantization(f"compressed-tensors {'; '.join(dict.fromkeys(described))}", tuple(dict.fromkeys(layouts)))


def _in_groups(size: int) -> str:
    return f" in groups of {size}" if size > 0 else " by output"


def _in_blocks(block: tuple[int, int] | None) -> str:
    return f" in blocks of {block[0]} x {block[1]}" if block else ""


COMPRESSED = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mxfp4-pack-quantized")
READERS: dict[str, Callable[[_Fields], Quantization]] = {
    "awq": _awq,
    "gptq": _gptq,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "modelopt": _modelopt,
    "compressed-tensors": _compressed,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
}
