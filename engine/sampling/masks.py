"""Masks and bias: grammar, allowed ids, bad words, stop ids before the minimum length, logit bias, a forced token.

Each function changes logits (R, V) in place, for all rows that use the feature at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch.nn.functional import pad

from engine.kernels.cpu import operators
from engine.kernels.cpu.transfer import upload
from engine.sequence import Sequence

FORBIDDEN = float("-inf")


@dataclass(frozen=True, slots=True)
class GrammarBitmask:
    """The tokens that grammars allow in some rows of a step."""

    rows: list[int]
    """G row numbers, each once."""
    words: torch.Tensor
    """(G, ceil(V / 32)) int32. Bit `i % 32` of word `i // 32` is set if token i is allowed. Ids beyond the words are
    forbidden."""


@dataclass(frozen=True, slots=True)
class LogitEntries:
    """Some tokens of some rows, each with a value."""

    rows: torch.Tensor
    index: torch.Tensor
    """Flat indices into the logits of the step."""
    values: torch.Tensor


class BadWords:
    """Token sequences that one output must not complete."""

    def __init__(self, words: list[list[int]]) -> None:
        """Index the words, none of which may be empty."""
        self._always = [word[0] for word in words if len(word) == 1]
        self._after = [(word[:-1], word[-1]) for word in words if len(word) > 1]

    def next_ids(self, output_ids: list[int]) -> list[int]:
        """Return the tokens that would complete a bad word now."""
        return self._always + [last for before, last in self._after if output_ids[-len(before) :] == before]


def mask_grammar(logits: torch.Tensor, bitmask: GrammarBitmask) -> None:
    """Forbid the tokens that the grammars do not allow."""
    index = upload(bitmask.rows, torch.int64, logits.device)
    if logits.device.type == "cpu":
        operators.forbid(logits, index, bitmask.words)
    else:
        forbid_in_torch(logits, index, upload(bitmask.words.numpy(), torch.int32, logits.device))


def forbid_in_torch(logits: torch.Tensor, rows: torch.Tensor, words: torch.Tensor) -> None:
    """Do as `operators.forbid` on any device. A table holds what each byte of a mask adds to eight logits."""
    width = logits.shape[1]
    eights = words.view(torch.uint8).int()
    added = (
        _byte_table(logits.device).index_select(0, eights.reshape(-1)).view(len(rows), 8 * eights.shape[1])[:, :width]
    )
    logits.index_add_(0, rows, pad(added, (0, width - added.shape[1]), value=FORBIDDEN))


def mask_all_but(logits: torch.Tensor, allowed: LogitEntries) -> None:
    """Forbid all tokens of these rows except the entries."""
    flat = logits.view(-1)
    kept = flat[allowed.index]
    logits.index_fill_(0, allowed.rows, FORBIDDEN)
    flat[allowed.index] = kept


def mask_bad_words(logits: torch.Tensor, rows: list[tuple[int, BadWords]], sequences: list[Sequence]) -> None:
    """Forbid the tokens that would complete a bad word in the output of their row."""
    _forbid(logits, [(row, token_id) for row, words in rows for token_id in words.next_ids(sequences[row].output_ids)])


def mask_stop_ids(logits: torch.Tensor, rows: list[tuple[int, list[int]]], sequences: list[Sequence]) -> None:
    """Forbid the stop ids of those `rows` (number, stop ids) that have fewer tokens than their minimum."""
    early = [
        (row, stop_ids)
        for row, stop_ids in rows
        if len(sequences[row].output_ids) < sequences[row].request.stop.min_tokens
    ]
    _forbid(logits, [(row, token_id) for row, stop_ids in early for token_id in stop_ids])


def add_bias(logits: torch.Tensor, bias: LogitEntries) -> None:
    """Add to each logit the value of its entry; no entry may occur twice."""
    logits.view(-1)[bias.index] += bias.values


def force(logits: torch.Tensor, tokens: list[tuple[int, int]]) -> None:
    """Force one token in each of these rows (row, token), even a forbidden one."""
    index = upload([row for row, _ in tokens], torch.int64, logits.device)
    logits.index_fill_(0, index, FORBIDDEN)
    logits[index, upload([token_id for _, token_id in tokens], torch.int64, logits.device)] = 0.0


def _forbid(logits: torch.Tensor, tokens: list[tuple[int, int]]) -> None:
    if tokens:
        places = [row * logits.shape[1] + token_id for row, token_id in tokens]
        logits.view(-1).index_fill_(0, upload(places, torch.int64, logits.device), FORBIDDEN)


@cache
def _byte_table(device: torch.device) -> torch.Tensor:
    """Return (256, 8): 0 where a bit of the byte is set, counted from the lowest, else -inf."""
    bits = torch.arange(256)[:, None] >> torch.arange(8) & 1
    return torch.zeros(256, 8).masked_fill_(bits == 0, FORBIDDEN).to(device)
