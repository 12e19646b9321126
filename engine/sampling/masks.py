"""Tokens that may not be drawn now. Today the stop ids of sequences below their `min_tokens`; every further mask joins here."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class GrammarBitmask:
    """What grammars allow in some rows of a step: `rows` (G numbers, each once) and `words` (G, ceil(V / 32)) int32.

    Bit `i % 32` of word `i // 32` is set where token i is allowed; ids beyond the words are forbidden.
    """

    rows: list[int]
    words: torch.Tensor


def mask_grammar(logits: torch.Tensor, bitmask: GrammarBitmask) -> None:
    """Set to -inf, in logits (R, V), what the grammars forbid."""
    num_rows, width = len(bitmask.rows), logits.shape[1]
    words = bitmask.words.to(logits.device)
    shifts = torch.arange(32, dtype=torch.int32, device=logits.device)
    is_allowed = ((words[:, :, None] >> shifts) & 1).bool().view(num_rows, -1)[:, :width]
    if is_allowed.shape[1] < width:
        is_allowed = torch.nn.functional.pad(is_allowed, (0, width - is_allowed.shape[1]))
    index = torch.tensor(bitmask.rows, device=logits.device)
    logits[index] = logits[index].masked_fill_(~is_allowed, float("-inf"))


def mask_stop_ids(logits: torch.Tensor, rows: list[tuple[int, list[int]]], sequences: list[Sequence]) -> None:
    """Set to -inf, in logits (R, V), the stop ids of those `rows` (number, stop ids) that still lack tokens of their minimum."""
    places = [
        row * logits.shape[1] + token_id
        for row, stop_ids in rows
        if len(sequences[row].output_ids) < sequences[row].stop.min_tokens
        for token_id in stop_ids
    ]
    if places:
        logits.view(-1).index_fill_(0, torch.tensor(places, device=logits.device), float("-inf"))
