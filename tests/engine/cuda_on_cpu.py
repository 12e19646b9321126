"""The CUDA path on CPU tensors: layers take their branches for CUDA, kernels run in Triton's interpreter, a graph
computes anew.

What is left out are the captured graphs themselves and the libraries' kernels for chunks, which the tests in tests/gpu
run: on a CPU the backend chooses torch's `scaled_dot_product_attention`.
"""

from __future__ import annotations

import torch


class RepeatedCompute:
    """Stands for a captured graph: fixed memory for the result, computed anew at each replay."""

    def __call__(self, compute):
        result = compute().clone()

        def replay():
            result.copy_(compute())

        return replay, result


def take_the_cuda_path(monkeypatch) -> None:
    """For the rest of a test. Call it once the model is loaded: the CPU forms of weights look at the same property."""
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda tensor: False), raising=False)
