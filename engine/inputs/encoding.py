"""Prompt pieces to token ids, cut to a limit where the request asks for it, with bounds on the work.

Only control texts that the template wrote become control tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.api.errors import ErrorCode, RequestError
from engine.api.prompt_size import prompt_tokens, too_many_tokens
from engine.api.request import GenerationRequest, PromptOptions
from engine.inputs.escaping import ControlTexts, PromptPiece
from engine.inputs.images import PromptMedia
from engine.tokenizers.tokenizer import Tokenizer

SPARE_TOKENS = 64
"""Text for this many further tokens is kept at a cut, because near a cut text may split into other tokens."""
MIN_SLICE_CHARS, COMMON_TOKEN_CHARS = 100_000, 8
"""A text of at most this many characters (the second: per token of the context) is tokenised in one go. A longer one is
first counted in slices of that size."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of one request, ready for the core."""

    token_ids: list[int]
    text: str | None
    """The text of `token_ids`, after truncation; None if it has not been decoded yet."""
    end_ids: tuple[int, ...] = ()
    """Tokens that end an answer to this prompt, besides the model's own end tokens."""
    second_start: int = 0
    """The first token of the second text of a pair; 0 if it is one text, or its tokens say where."""
    media: PromptMedia = PromptMedia()


class PieceEncoder:
    """An encoder of prompt pieces with the tokenizer of one model."""

    def __init__(self, tokenizer: Tokenizer, controls: ControlTexts) -> None:
        self._tokenizer = tokenizer
        self._controls = controls
        self._normalises = tokenizer.backend.normalizer is not None
        known = tokenizer.backend.token_to_id
        self._control_ids = frozenset(
            token_id for text in tokenizer.added_texts if text.strip() and (token_id := known(text)) is not None
        )

    def check(self, pieces: list[PromptPiece], request: GenerationRequest, max_model_len: int) -> None:
        """Refuse a text with far too many tokens before all of it is tokenised. Raises RequestError.

        A short text passes without being counted.
        """
        slice_chars = MIN_SLICE_CHARS + COMMON_TOKEN_CHARS * max_model_len
        num_chars = sum(len(piece.text) for piece in pieces)
        if num_chars <= slice_chars:
            return
        text = "".join(piece.text for piece in pieces)
        most = prompt_tokens(request, max_model_len)
        num_tokens = 0
        for start in range(0, num_chars, slice_chars):
            # NOTE: a cut may add a few tokens to those of the whole text, never a share of them.
            num_tokens += max(0, self._tokenizer.count(text[start : start + slice_chars]) - SPARE_TOKENS)
            if num_tokens > most:
                raise too_many_tokens(request, num_tokens, max_model_len)

    def encode_truncated(
        self, pieces: list[PromptPiece], num_kept: int, options: PromptOptions
    ) -> tuple[list[int], str]:
        """Return ids and text of at most `num_kept` tokens. Text far beyond them is not tokenised."""
        side = options.truncation_side
        cut = cut_pieces(pieces, num_kept, self._tokenizer.longest_token_chars, side)
        token_ids = self.encode(cut, options.add_special_tokens)
        kept = cut_ids(token_ids, num_kept, side)
        if len(kept) == len(token_ids):
            return kept, "".join(piece.text for piece in cut)
        return kept, b"".join(map(self._tokenizer.token_bytes, kept)).decode("utf-8", "replace")

    def encode(self, pieces: list[PromptPiece], add_special_tokens: bool) -> list[int]:
        """Return the token ids of all pieces; `add_special_tokens` adds BOS and the like in front."""
        token_ids: list[int] = []
        if add_special_tokens and pieces and pieces[0].is_typed:
            token_ids += self._tokenizer.beginning
        for index, piece in enumerate(pieces):
            is_behind_text = bool(token_ids) and token_ids[-1] not in self._control_ids
            if piece.is_typed:
                token_ids += self._encode_part(self._tokenizer.encode_ordinary, piece.text, is_behind_text)
                continue
            adds = add_special_tokens and index == 0
            if adds:
                encoded = self._tokenizer.encode(piece.text, add_special_tokens=True)
            else:
                encoded = self._encode_part(self._tokenizer.encode, piece.text, is_behind_text)
            if self._normalises and not piece.text.isascii():
                plain = self._tokenizer.encode(piece.text) if adds else encoded
                if self._has_forged(piece.text, plain):
                    encoded = [*(self._tokenizer.beginning if adds else ()), *self._encode_spelled(piece.text)]
            token_ids += encoded
        return token_ids

    def _encode_part(self, encode: Callable[[str], list[int]], text: str, is_behind_text: bool) -> list[int]:
        return self._tokenizer.without_prefix_space(encode, text) if is_behind_text else encode(text)

    def _has_forged(self, text: str, token_ids: list[int]) -> bool:
        """Return True if more control tokens came out than the text spells.

        A tokenizer that normalises first can make a control token out of other characters.
        """
        num_tokens = sum(token_id in self._control_ids for token_id in token_ids)
        return bool(self._controls.pattern and num_tokens > sum(1 for _ in self._controls.pattern.finditer(text)))

    def _encode_spelled(self, text: str) -> list[int]:
        """Return ids of a text in which only literally spelled control texts become control tokens."""
        assert self._controls.pattern is not None
        token_ids: list[int] = []
        position = 0
        for match in self._controls.pattern.finditer(text):
            token_ids += self._tokenizer.encode_ordinary(text[position : match.start()]) + self._tokenizer.encode(
                match.group()
            )
            position = match.end()
        return token_ids + self._tokenizer.encode_ordinary(text[position:])


def num_kept_tokens(truncate_to: int | None, max_model_len: int) -> int | None:
    """Return how many tokens a prompt may keep, None for all. Raises RequestError."""
    if truncate_to is None:
        return None
    if truncate_to == -1:
        return max_model_len - 1
    if not 1 <= truncate_to <= max_model_len:
        message = (
            f"truncate_prompt_tokens must be from 1 to {max_model_len}, the model's context length, or -1, "
            f"got {truncate_to}"
        )
        raise RequestError(ErrorCode.INVALID_VALUE, message, "truncate_prompt_tokens")
    return truncate_to


def cut_pieces(pieces: list[PromptPiece], num_kept: int, longest_token_chars: int, side: str) -> list[PromptPiece]:
    """Return the pieces that the last `num_kept` tokens could come from, or with side "right" the first.

    Counting characters first keeps a huge text from being tokenised.
    """
    budget = (num_kept + SPARE_TOKENS) * longest_token_chars
    cut: list[PromptPiece] = []
    for piece in pieces if side == "right" else reversed(pieces):
        if budget <= 0:
            break
        text = piece.text[:budget] if side == "right" else piece.text[-budget:]
        cut.append(PromptPiece(text, piece.is_typed))
        budget -= len(text)
    return cut if side == "right" else cut[::-1]


def cut_ids(token_ids: list[int], num_kept: int, side: str) -> list[int]:
    """Return the last `num_kept` ids, or with side "right" the first."""
    return token_ids[:num_kept] if side == "right" else token_ids[-num_kept:]


def check_characters(text: str, param: str) -> None:
    """Refuse half characters. Raises RequestError for the field `param`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        message = f"{param} holds half characters (surrogates), which no tokenizer reads; send whole ones"
        raise RequestError(ErrorCode.INVALID_VALUE, message, param) from None
