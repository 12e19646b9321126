"""The gated activation of the feed-forward block: SwiGLU (https://arxiv.org/abs/2002.05202)."""

from __future__ import annotations

import torch
from torch.nn import functional


def silu_and_multiply(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up: (T, 2I), gates first  ->  silu(gate) * up: (T, I)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)
