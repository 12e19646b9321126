"""The CUDA path on CPU tensors: layers take their branches for CUDA, kernels run in Triton's interpreter, a graph computes anew.

What is left out are the captured graphs themselves and the flash attention of xformers, which the tests in tests/gpu run.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.xformers_paged import XformersAttention, import_fmha


class MaterialisedAttention(XformersAttention):
    """The backend with the products of its chunks done by torch over the materialised mask."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.fmha = self

    @property
    def attn_bias(self):
        return import_fmha().attn_bias

    def memory_efficient_attention_forward(self, q, k, v, *, attn_bias, scale):
        mask = attn_bias.materialize((q.shape[1], k.shape[1])).to(q.dtype)
        q, k, v = (part.flatten(2, 3).transpose(1, 2) for part in (q, k, v))
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(1, 2)


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
