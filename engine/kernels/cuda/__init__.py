"""Operators of the step on CUDA, as Triton kernels: one file each, with the plain torch that it must agree with in its tests.

    norm.py             add to the residual stream and normalise
    gate.py             silu(gate) * up
    rotary.py           rotate queries and keys, write keys and values into the cache
    paged_attention.py  attention of single rows over the paged cache
    byte_product.py     products with eight-bit weights

Imported where a CUDA device computes, never on a CPU. Kernels use pointers only: block pointers, which the kernels of xformers are
written with, left Triton in 3.9. None looks at a size that changes from step to step when it is compiled, so each is compiled once per
model and serves in captured graphs. Tests run them in Triton's interpreter where there is no device.
"""

import os

# What Triton 3.9 does unasked, with a warning; 3.10 will not, and would give other numbers.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
