"""Tokens that may not be drawn now. Today the stop ids of sequences below their `min_tokens`; every further mask joins here."""

from __future__ import annotations

import torch

from engine.sequence import Sequence


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
