"""The largest logits of each row, exactly: ties go to the lower id, on every device and in any batch.

`torch.topk` and `torch.argmax` are slow over a whole vocabulary on a CPU, and `topk` returns ties in no fixed order. So
only the blocks of logits that can matter are read.

Letters: R rows, V vocabulary (a multiple of BLOCK), B blocks of BLOCK logits, N ranks asked for.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from engine.kernels.cpu.operators import BLOCK


def pad_to_blocks(logits: torch.Tensor) -> torch.Tensor:
    """Return logits (R, V), with -inf up to the next multiple of BLOCK."""
    missing = -logits.shape[1] % BLOCK
    return pad(logits, (0, missing), value=float("-inf")) if missing else logits


def block_maxima(logits: torch.Tensor) -> torch.Tensor:
    """Return the largest logit of each block: (R, V) -> (R, B). NaN wins."""
    return logits.view(logits.shape[0], -1, BLOCK).amax(2)


def open_blocks(logits: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Return the logits of some blocks of each row side by side: logits (R, V), blocks (R, N) -> (R, N * BLOCK)."""
    num_rows, width = logits.shape
    first = torch.arange(num_rows, device=logits.device)[:, None] * (width // BLOCK)
    return logits.view(-1, BLOCK).index_select(0, (blocks + first).flatten()).view(num_rows, -1)


def first_largest(logits: torch.Tensor, maxima: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids (R,) and values (R,) of each row's largest logit, the lowest id among equals."""
    block = maxima.argmax(1)
    inside = open_blocks(logits, block[:, None])
    offset = inside.argmax(1)
    return block * BLOCK + offset, inside.gather(1, offset[:, None]).squeeze(1)


def rank(logits: torch.Tensor, maxima: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values and ids, both (R, min(count, V)), of the `count` largest logits, best first, equal ones by id."""
    width = logits.shape[1]
    if count >= width // 4:
        values, ids = logits.sort(dim=1, descending=True, stable=True)
        return values[:, :count], ids[:, :count]
    values, ids = _largest(logits, maxima, count + 1)
    is_tie = values[:, 1:] == values[:, :-1]
    if is_tie.any():
        ids, order = ids.sort(dim=1)
        values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
        ids = ids.gather(1, order)
        for row in is_tie[:, -1].nonzero().flatten().tolist():
            ids[row, :count] = _row_ids(logits[row], values[row, count - 1], count)
    return values[:, :count], ids[:, :count]


def rank_without_sync(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rank as `rank` does, without synchronising with the device.

    Logit and id are packed into one integer with the order of `rank`, so that no two are equal.
    """
    num_rows, width = logits.shape
    count = min(count, width)
    bits = (logits + 0.0).view(torch.int32).long()  # -0.0 becomes 0.0, which it is equal to
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (ordered << 32) + torch.arange(width - 1, -1, -1, device=logits.device)
    if count * 4 <= width // BLOCK:
        blocks = keys.view(num_rows, -1, BLOCK).amax(2).topk(count).indices
        keys = open_blocks(keys, blocks)
    ids = width - 1 - (keys.topk(count).values & 0xFFFFFFFF)
    return logits.gather(1, ids), ids


def _largest(logits: torch.Tensor, maxima: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `count` largest values (R, count), best first, and their ids. Which of equal ones is left out is open.

    The `count` blocks with the largest maxima contain them.
    """
    num_rows, num_blocks = maxima.shape
    if count * 4 > num_blocks:
        return logits.topk(count)
    blocks = maxima.topk(count).indices
    values, places = open_blocks(logits, blocks).topk(count)
    return values, blocks.gather(1, places // BLOCK) * BLOCK + places % BLOCK


def _row_ids(logits: torch.Tensor, least: torch.Tensor, count: int) -> torch.Tensor:
    """Return the `count` best ids of one row (V,) whose last ones are equal to `least`."""
    ids = (logits >= least).nonzero().flatten()
    return ids[logits[ids].sort(descending=True, stable=True).indices[:count]]
