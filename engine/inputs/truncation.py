"""Keep the last, or the first, tokens of a prompt. Text is cut by characters first, so that no huge text is tokenised."""

from __future__ import annotations

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.marks import Piece

SPARE_TOKENS = 64
"""Kept beyond what is asked for: near a cut, text may fall into other tokens than it would uncut."""


def kept_tokens(truncate_to: int | None, max_model_len: int) -> int | None:
    """How many tokens a prompt may keep; None for all. Raises RequestError."""
    if truncate_to is None:
        return None
    if truncate_to == -1:
        return max_model_len - 1
    if not 1 <= truncate_to <= max_model_len:
        message = f"truncate_prompt_tokens must be from 1 to {max_model_len}, the model's context length, or -1, got {truncate_to}"
        raise RequestError(ErrorCode.INVALID_VALUE, message, "truncate_prompt_tokens")
    return truncate_to


def cut_pieces(pieces: list[Piece], num_kept: int, longest_token_chars: int, side: str) -> list[Piece]:
    """The pieces that `num_kept` tokens of at most `longest_token_chars` could come from, at the end or ("right") at the beginning."""
    budget = (num_kept + SPARE_TOKENS) * longest_token_chars
    cut: list[Piece] = []
    for piece in pieces if side == "right" else reversed(pieces):
        if budget <= 0:
            break
        text = piece.text[:budget] if side == "right" else piece.text[-budget:]
        cut.append(Piece(text, piece.is_typed))
        budget -= len(text)
    return cut if side == "right" else cut[::-1]


def cut_ids(token_ids: list[int], num_kept: int, side: str) -> list[int]:
    """The last `num_kept` ids, or the first."""
    return token_ids[:num_kept] if side == "right" else token_ids[-num_kept:]
