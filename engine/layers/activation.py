"""The gated activation of the feed-forward block: SwiGLU (https://arxiv.org/abs/2002.05202)."""

from __future__ import annotations

import torch

from engine.kernels.cpu import operators


def silu_and_multiply(gate_up: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """gate_up: (T, 2I), gates first  ->  silu(gate) * up: (T, I) in `dtype`."""
    if gate_up.is_cpu:
        return operators.gate(gate_up, dtype)
    from engine.kernels.cuda.rows import gate

    return gate(gate_up, dtype)
