"""Folders of quantised weights, written with plain torch as the documentation of each format says.

A writer takes a matrix (N, K) and returns its tensors by suffix, and the numbers that they stand for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

Written = tuple[dict[str, torch.Tensor], torch.Tensor]
Writer = Callable[[torch.Tensor], Written]
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def words(levels: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    """Pack levels into int32 words along `dim`, the first in the lowest bits."""
    parts = levels.to(torch.int64).unflatten(dim, (-1, 32 // bits)).unbind(dim + 1)
    packed = sum(part << bits * place for place, part in enumerate(parts))
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32).contiguous()


def uniform(
    weight: torch.Tensor, bits: int, size: int, symmetric: bool, index: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return levels (N, K), scales and zero points (N, G), and the numbers. index: the group of each input."""
    num_inputs = weight.shape[1]
    index = torch.arange(num_inputs) // (num_inputs if size < 0 else size) if index is None else index
    highest = (1 << bits) - 1
    scales, zeros = [], []
    for group in range(int(index.max()) + 1):
        some = weight[:, index == group]
        low, high = some.amin(1).clamp(max=0), some.amax(1).clamp(min=0)
        scale = (2 * some.abs().amax(1) if symmetric else high - low) / highest
        scales.append(scale.half().float())
        zeros.append(torch.full_like(low, (highest + 1) // 2) if symmetric else (-low / scales[-1]).round())
    scale, zero = torch.stack(scales, 1), torch.stack(zeros, 1).clamp(0, highest)
    levels = (weight / scale[:, index] + zero[:, index]).round().clamp(0, highest)
    return levels, scale, zero, (levels - zero[:, index]) * scale[:, index]


def awq(size: int) -> Writer:
    def write(weight: torch.Tensor) -> Written:
        levels, scale, zero, values = uniform(weight, 4, size, symmetric=False)
        in_order = (part.T.unflatten(1, (-1, 8))[:, :, AWQ_ORDER].flatten(1) for part in (levels, zero))
        packed, zeros = (words(part, 4, 1) for part in in_order)
        return {"qweight": packed, "qzeros": zeros, "scales": scale.T.half().contiguous()}, values

    return write


def gptq(bits: int, size: int, *, symmetric: bool, version: int = 1, by_activation: bool = False) -> Writer:
    def write(weight: torch.Tensor) -> Written:
        index = torch.arange(weight.shape[1]) // (weight.shape[1] if size < 0 else size)
        if by_activation:
            index = index[torch.randperm(len(index), generator=torch.Generator().manual_seed(len(index)))]
        levels, scale, zero, values = uniform(weight, bits, size, symmetric, index)
        stored = (zero.long() - int(version == 1)) & ((1 << bits) - 1)
        tensors = {"qweight": words(levels.T, bits, 0), "qzeros": words(stored.T, bits, 1)}
        return tensors | {"scales": scale.T.half().contiguous(), "g_idx": index.int()}, values

    return write


def packed(bits: int, size: int, *, symmetric: bool, by_activation: bool = False) -> Writer:
    def write(weight: torch.Tensor) -> Written:
        index = torch.arange(weight.shape[1]) // (weight.shape[1] if size < 0 else size)
        index = index.flip(0) if by_activation else index
        levels, scale, zero, values = uniform(weight, bits, size, symmetric, index)
        tensors = {"weight_packed": words(levels, bits, 1), "weight_shape": torch.tensor(weight.shape)}
        tensors |= {"weight_scale": scale} | ({} if symmetric else {"weight_zero_point": words(zero, bits, 0)})
        return tensors | ({"weight_g_idx": index.int()} if by_activation else {}), values

    return write


def fp8(block: tuple[int, int] | None, name: str, *, by_row: bool = False) -> Writer:
    """Scales of blocks, of rows, or one of the matrix."""

    def write(weight: torch.Tensor) -> Written:
        outputs, inputs = weight.shape
        height, width = block or (1 if by_row else outputs, inputs)
        grid = [part.split(width, 1) for part in weight.split(height)]
        scale = torch.tensor([[one.abs().max() / 448 for one in line] for line in grid])
        whole = scale.repeat_interleave(height, 0)[:outputs].repeat_interleave(width, 1)[:, :inputs]
        stored = (weight / whole).to(torch.float8_e4m3fn)
        tensors = {"weight": stored, name: scale if block or by_row else scale.reshape(())}
        return tensors | {"input_scale": torch.tensor(0.5)}, stored.float() * whole

    return write


def int8_rows(weight: torch.Tensor) -> Written:
    """A largest level that is not 127, so that quantising anew would move the others."""
    scale = weight.abs().amax(1, keepdim=True) / 127.5
    levels = (weight / scale).round().clamp(-128, 127)
    return {"weight": levels.to(torch.int8), "weight_scale": scale}, levels * scale


def int8_groups(size: int) -> Writer:
    """Bytes with a scale and a zero point for each group of inputs."""

    def write(weight: torch.Tensor) -> Written:
        levels, scale, zero, values = uniform(weight, 8, size, symmetric=False)
        tensors = {"weight": levels - 128, "weight_zero_point": zero - 128}
        return {name: part.to(torch.int8) for name, part in tensors.items()} | {"weight_scale": scale}, values

    return write


def llm_int8(weight: torch.Tensor) -> Written:
    largest = weight.abs().amax(1)
    levels = (weight / largest[:, None] * 127).round()
    tensors = {"weight": levels.to(torch.int8), "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return tensors, levels * (largest / 127)[:, None]


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
E2M1 = torch.cat((E2M1, -E2M1))


def mxfp4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return bytes of two numbers (…, K / 2), the first in the low bits, exponents (…, K / 32), and the numbers."""
    blocks = weight.unflatten(-1, (-1, 32))
    exponent = (blocks.abs().amax(-1, keepdim=True) / 6).log2().ceil()
    levels = (blocks / exponent.exp2())[..., None].sub(E2M1).abs().argmin(-1)
    two = (levels[..., 0::2] | levels[..., 1::2] << 4).flatten(-2).to(torch.uint8)
    return two, (exponent.squeeze(-1) + 127).to(torch.uint8), (E2M1[levels] * exponent.exp2()).flatten(-2)


def mxfp4_packed(weight: torch.Tensor) -> Written:
    two, exponents, values = mxfp4(weight)
    return {"weight_packed": two, "weight_scale": exponents}, values


def mxfp4_blocks(weight: torch.Tensor) -> Written:
    two, exponents, values = mxfp4(weight)
    return {"weight_blocks": two.unflatten(-1, (-1, 16)), "weight_scales": exponents}, values


NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635]
NF4 += [-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725]
NF4 += [0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
FP4 = [0.0, 0.0052083333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]
FP4 += [-level for level in FP4]


def bitsandbytes(kind: str, levels: list[float], *, nested: bool) -> Writer:
    def write(weight: torch.Tensor) -> Written:
        table, blocks = torch.tensor(levels), weight.reshape(-1, 64)
        state = {"quant_type": kind, "blocksize": 64, "dtype": "float32", "shape": list(weight.shape)}
        scale = blocks.abs().amax(1)
        tensors = {"weight.quant_map": table, "weight.absmax": scale}
        if nested:
            offset, steps = float(scale.mean()), torch.linspace(-1, 1, 256)
            largest = torch.stack([(part - offset).abs().max() for part in scale.split(16)]).repeat_interleave(16)
            largest = largest[: len(scale)]
            stored = ((scale - offset) / largest)[:, None].sub(steps).abs().argmin(1)
            scale = steps[stored] * largest + offset
            state |= {"nested_blocksize": 16, "nested_dtype": "float32", "nested_offset": offset}
            tensors |= {"weight.absmax": stored.to(torch.uint8), "weight.nested_absmax": largest[::16].contiguous()}
            tensors["weight.nested_quant_map"] = steps
        places = (blocks / scale[:, None])[..., None].sub(table).abs().argmin(-1)
        two = places.flatten().view(-1, 2)
        tensors["weight"] = (two[:, :1] << 4 | two[:, 1:]).to(torch.uint8)
        tensors[f"weight.quant_state.bitsandbytes__{kind}"] = torch.tensor(list(json.dumps(state).encode())).byte()
        return tensors, (table[places] * scale[:, None]).view(weight.shape)

    return write


def compressed(kind: str, **weights: object) -> dict:
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "strategy": "channel", **weights}}
    return {"quant_method": "compressed-tensors", "format": kind, "config_groups": {"group_0": group}}


def four_bits(kind: str) -> dict:
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}
GROUPS_OF_32 = {"num_bits": 4, "strategy": "group", "group_size": 32}
FORMATS: dict[str, tuple[dict, Writer, str]] = {
    "AWQ": ({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}, awq(32), "four"),
    "AWQ, groups that do not fill rows": ({"quant_method": "awq", "bits": 4, "group_size": 64}, awq(64), "four"),
    "GPTQ": (GPTQ, gptq(4, 32, symmetric=True), "four"),
    "GPTQ, second version, with zero points": (
        GPTQ | {"group_size": -1, "checkpoint_format": "gptq_v2"},
        gptq(4, -1, symmetric=False, version=2),
        "four",
    ),
    "GPTQ by activation order": (
        GPTQ | {"desc_act": True},
        gptq(4, 32, symmetric=False, by_activation=True),
        "eight",
    ),
    "GPTQ of eight bits": (GPTQ | {"bits": 8}, gptq(8, 32, symmetric=False), "eight"),
    "compressed-tensors W4A16": (compressed("pack-quantized", **GROUPS_OF_32), packed(4, 32, symmetric=True), "four"),
    "compressed-tensors W4A16, with zero points": (
        compressed("pack-quantized", num_bits=4),
        packed(4, -1, symmetric=False),
        "four",
    ),
    "compressed-tensors W4A16 by activation order": (
        compressed("pack-quantized", **GROUPS_OF_32),
        packed(4, 32, symmetric=True, by_activation=True),
        "eight",
    ),
    "compressed-tensors W8A16": (compressed("pack-quantized"), packed(8, -1, symmetric=True), "bytes"),
    "compressed-tensors W8A8": (compressed("int-quantized"), int8_rows, "bytes"),
    "compressed-tensors W8A8, with zero points": (compressed("int-quantized"), int8_groups(-1), "eight"),
    "compressed-tensors W8A8 in groups, with zero points": (
        compressed("int-quantized", strategy="group", group_size=32),
        int8_groups(32),
        "eight",
    ),
    "compressed-tensors FP8": (compressed("float-quantized"), fp8(None, "weight_scale", by_row=True), "eight"),
    "compressed-tensors FP8, a scale of each matrix": (
        compressed("float-quantized", strategy="tensor"),
        fp8(None, "weight_scale"),
        "eight",
    ),
    "compressed-tensors FP8, scales of blocks": (
        compressed("float-quantized", strategy="block", block_structure=[48, 64]),
        fp8((48, 64), "weight_scale"),
        "eight",
    ),
    "compressed-tensors MXFP4": (compressed("mxfp4-pack-quantized"), mxfp4_packed, "table"),
    "FP8, a scale of each matrix": ({"quant_method": "fp8"}, fp8(None, "weight_scale"), "eight"),
    "FBGEMM FP8": ({"quant_method": "fbgemm_fp8"}, fp8(None, "weight_scale", by_row=True), "eight"),
    "ModelOpt FP8": ({"quant_method": "modelopt", "quant_algo": "FP8"}, fp8(None, "weight_scale"), "eight"),
    "FP8, scales of blocks": (
        {"quant_method": "fp8", "weight_block_size": [48, 64]},
        fp8((48, 64), "weight_scale_inv"),
        "eight",
    ),
    "MXFP4, blocks and scales": ({"quant_method": "mxfp4"}, mxfp4_blocks, "table"),
    "bitsandbytes NF4": (four_bits("nf4"), bitsandbytes("nf4", NF4, nested=False), "table"),
    "bitsandbytes NF4, scales quantised too": (four_bits("nf4"), bitsandbytes("nf4", NF4, nested=True), "table"),
    "bitsandbytes FP4": (four_bits("fp4"), bitsandbytes("fp4", FP4, nested=False), "table"),
    "bitsandbytes INT8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, llm_int8, "bytes"),
}
"""Name -> quantization_config, writer, and how our integer products hold it: in the "four" bits, the "table" or the
"bytes" of the file, or in "eight" bits of ours."""


def write_quantized(
    folder: Path,
    reference: torch.nn.Module,
    config: dict,
    writer: Writer,
    endings: tuple[str, ...] = ("proj.weight",),
) -> None:
    """Save the model with the matrices of these names quantised; give `reference` the numbers that they stand for.

    By default these are the projections of its layers. The second layer's `down_proj` stays as it is, as modules do
    that are to be left out.
    """
    reference.save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name, parameter in reference.named_parameters():
        if name.endswith(endings) and not name.endswith("1.mlp.down_proj.weight"):
            made, values = writer(parameter.detach())
            parameter.data.copy_(values)
            del tensors[name]
            tensors |= {f"{name.removesuffix('weight')}{suffix}": tensor.clone() for suffix, tensor in made.items()}
    save_file(tensors, file)
    edit_config(folder, quantization_config=config)


def edit_config(folder: Path, **changes: object) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | changes))
