"""The CUDA path on CPU tensors: CUDA branches of the layers, kernels in Triton's interpreter, graphs recomputed.

Captured graphs themselves and library kernels for chunks are tested in tests/gpu. On a CPU the backend chooses torch's
`scaled_dot_product_attention`.
"""

from __future__ import annotations

import torch


class RepeatedCompute:
    """A stand-in for a captured graph: the result has fixed memory and is recomputed at each replay."""

    def __call__(self, compute):
        result = compute().clone()

        def replay():
            result.copy_(compute())

        return replay, result


def take_the_cuda_path(monkeypatch) -> None:
    """Use the CUDA path for the rest of a test.

    Call it once the model is loaded, as the CPU forms of weights depend on the same property.
    """
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda tensor: False), raising=False)
