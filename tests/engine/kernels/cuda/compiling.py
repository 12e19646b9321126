"""Compile the kernels for devices that need not be present: `python -m tests.engine.kernels.cuda.compiling`.

Prints one line per program: capability, name, bytes of shared memory. It needs its own process, as Triton's interpreter
cannot be switched off again.
"""

from __future__ import annotations

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.kernels.cuda import byte_product, paged_attention, rotary, rows

SIZE = 128
CUT = {"GROUP": 4, "SIZE": SIZE, "SIZE_BLOCK": SIZE, "TILE": 64, "PARTS": 4, "LEAST": paged_attention.LEAST_PART}
SUMS = {"sums": "*fp32", "maxima": "*fp32", "totals": "*fp32", "contexts": "*i64", "out": "*bf16"}
SUMS |= {"sinks": "*bf16", "window": "i32"}
STRIDES = dict.fromkeys(("kv_heads", "query_stride", "table_row_stride", "table_block_stride"), "i32")


def product(rows: int, outputs: int):
    """Return the largest and the smallest programs of a product with bytes."""
    types = {"x": "*bf16", "values": "*i8", "scales": "*fp32", "bias": "*bf16", "out": "*bf16"}
    types |= dict.fromkeys(("num_rows", "num_outputs", "num_inputs"), "i32")
    constants = {"HAS_BIAS": True, "ROWS": rows, "OUTPUTS": outputs, "INPUTS": byte_product.INPUTS, "IS_EXACT": False}
    return byte_product._multiply, types, constants, {"num_warps": 4, "num_stages": 4}


def attention(cache: str):
    """Return the kernels that write and read the cache, in bf16 or fp8e4nv."""
    types = (
        {
            "queries": "*bf16",
            "keys": f"*{cache}",
            "values": f"*{cache}",
            "table": "*i32",
            "scale": "fp32",
            "softcap": "fp32",
        }
        | SUMS
        | STRIDES
    )
    heads = {"heads": "*bf16", "rotations": "*fp32", "slots": "*i64", "keys": f"*{cache}", "values": f"*{cache}"}
    heads |= {"num_heads": "i32", "kv_heads": "i32"}
    cut = CUT | {"GROUP_BLOCK": 16, "PAGE": 16, "IS_EXACT": False}
    return [
        (paged_attention._attend_part, types, cut | {"IS_CAPPED": False, "HAS_SINKS": False}, {"num_warps": 4}),
        (
            paged_attention._attend_part,
            types,
            cut | {"PARTS": 1, "IS_CAPPED": True, "HAS_SINKS": True},
            {"num_warps": 4},
        ),
        (rotary._rotate_and_store, heads, {"SIZE": SIZE, "HALF": SIZE // 2, "BLOCK": SIZE // 2}, {"num_warps": 1}),
    ]


def kernels(capability: int):
    types = dict.fromkeys(("hidden", "delta", "weight", "bias", "out"), "*bf16")
    types |= {"size": "i32", "eps": "fp32", "scale": "fp32"}
    for has_weight, has_bias in ((True, False), (True, True), (False, False)):
        options = {"HAS_DELTA": True, "HAS_WEIGHT": has_weight, "HAS_BIAS": has_bias, "BLOCK": 4096}
        yield rows._add_normalize, types, options, {"num_warps": 8}
    heads = {"heads": "*bf16", "query_weight": "*bf16", "key_weight": "*bf16", "eps": "fp32"}
    heads |= dict.fromkeys(("row_size", "num_queries", "query_size", "key_size"), "i32")
    yield rows._normalize_heads, heads, {"BLOCK": SIZE}, {"num_warps": 1}
    activated = {"x": "*bf16", "out": "*bf16", "size": "i32", "width": "i32"}
    for is_gelu in (False, True):
        options = {"IS_GELU": is_gelu, "IS_GATED": not is_gelu, "BLOCK": rows.BLOCK}
        yield rows._gate, activated, options, {"num_warps": 4}
    for has_sinks in (False, True):
        yield paged_attention._join_parts, SUMS, CUT | {"PARTS_BLOCK": 4, "HAS_SINKS": has_sinks}, {"num_warps": 1}
    yield from attention("bf16")
    if capability >= 89:
        yield from attention("fp8e4nv")
    yield product(byte_product.LEAST_ROWS, byte_product.LEAST_OUTPUTS)
    yield product(byte_product.MOST_ROWS, byte_product.MOST_OUTPUTS)


def main() -> None:
    for capability in map(int, sys.argv[1:]):
        for kernel, types, constants, options in kernels(capability):
            names = kernel.arg_names
            signature = {name: "constexpr" if name in constants else types[name] for name in names}
            aligned = {
                (i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if types.get(name, "").startswith("*")
            }
            source = ASTSource(
                kernel, signature, {name: constants[name] for name in names if name in constants}, aligned
            )
            compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            sys.stdout.write(f"{capability} {kernel.__name__} {compiled.metadata.shared}\n")


if __name__ == "__main__":
    main()
