"""Draws the tokens of a step and verifies drafts: a sequence whose drafts hold gets several tokens.

At each position a token is drawn exactly as without drafts. While it equals the draft, the logits of the next position
are those of the true output too, so the next token is drawn from them. So the output is the same as without drafts, up
to the precision of kernels that depend on the number of rows. Method: speculative sampling with exact matching,
Leviathan et al., https://arxiv.org/abs/2211.17192.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch

from engine.sampling.penalties import has_penalties
from engine.sampling.sampler import SampledToken
from engine.sequence import Chunk, Sequence

Draw = Callable[[torch.Tensor, list[Sequence]], list[SampledToken]]
"""Logits (R, V) and a sequence per row -> a token per row. May overwrite the logits. Only independent sequences
repeat."""


def draw_tokens(
    draw: Draw, logits: torch.Tensor, chunks: list[Chunk], ends: Callable[[Sequence], object]
) -> list[list[SampledToken]]:
    """Draw the tokens of each chunk, at least one. logits: (R, V), one row per chunk and one per draft.

    All but the last token of a chunk equal its drafts. The draw stops after a token for which `ends(sequence)` is true.
    Accepted tokens are in `output_ids` only during the call.
    """
    if len(logits) == len(chunks):
        return [[token] for token in draw(logits, [chunk.sequence for chunk in chunks])]
    if all(_is_plain(chunk.sequence) for chunk in chunks):
        return _draw_at_once(draw, logits, chunks, ends)
    first_rows = [0, *accumulate(1 + len(chunk.draft_ids) for chunk in chunks)]
    drawn: list[list[SampledToken]] = [[] for _ in chunks]
    lengths = [len(chunk.sequence.output_ids) for chunk in chunks]
    active = list(range(len(chunks)))
    depth = 0
    try:
        while active:
            rows = torch.tensor([first_rows[index] + depth for index in active], device=logits.device)
            tokens = draw(logits.index_select(0, rows), [chunks[index].sequence for index in active])
            active = [
                index
                for index, token in zip(active, tokens, strict=True)
                if _accept(chunks[index], drawn[index], token, ends)
            ]
            depth += 1
    finally:
        for chunk, length in zip(chunks, lengths, strict=True):
            del chunk.sequence.output_ids[length:]
    return drawn


def num_accepted(chunk: Chunk, tokens: list[SampledToken]) -> int:
    """Count the drafts of a chunk that became output."""
    return sum(draft_id == token.token_id for draft_id, token in zip(chunk.draft_ids, tokens, strict=False))


def _is_plain(sequence: Sequence) -> bool:
    """Return True if a draw depends only on its logits, the seed and the position, so that the order is free."""
    sampling = sequence.sampling
    return not (
        sequence.request.grammar
        or sequence.request.thinking
        or sequence.request.bad_word_ids
        or sampling.processors
        or sequence.request.stop.min_tokens
    ) and not has_penalties(sampling)


def _draw_at_once(
    draw: Draw, logits: torch.Tensor, chunks: list[Chunk], ends: Callable[[Sequence], object]
) -> list[list[SampledToken]]:
    """Draw as `draw_tokens` does for independent sequences: all rows at once."""
    rows = [_after(chunk, place) for chunk in chunks for place in range(1 + len(chunk.draft_ids))]
    tokens = iter(draw(logits, rows))
    drawn: list[list[SampledToken]] = []
    for chunk in chunks:
        length = len(chunk.sequence.output_ids)
        found = [next(tokens) for _ in range(1 + len(chunk.draft_ids))]
        taken: list[SampledToken] = []
        drawn.append(taken)
        try:
            for token in found:
                if not _accept(chunk, taken, token, ends):
                    break
        finally:
            del chunk.sequence.output_ids[length:]
    return drawn


def _after(chunk: Chunk, place: int) -> Sequence:
    """Return the sequence with the first `place` drafts as output."""
    sequence = chunk.sequence
    return sequence.with_output([*sequence.output_ids, *chunk.draft_ids[:place]]) if place else sequence


def _accept(chunk: Chunk, tokens: list[SampledToken], token: SampledToken, ends: Callable[[Sequence], object]) -> bool:
    """Take a drawn token; return True if the next position may be drawn.

    A failed token after others is dropped: the next step fails the sequence, and no token is lost.
    """
    if token.is_failed and tokens:
        return False
    tokens.append(token)
    place = len(tokens) - 1
    if place >= len(chunk.draft_ids) or token.token_id != chunk.draft_ids[place]:
        return False
    chunk.sequence.output_ids.append(token.token_id)
    return not ends(chunk.sequence)
