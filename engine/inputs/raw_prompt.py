"""Prompts without a template: text, token ids, vectors, or the text before and after a gap to fill.

Control tokens that the text spells are control tokens. limits.py checks that the model has the ids.
"""

from __future__ import annotations

from hashlib import sha256

from engine.api.errors import ErrorCode, RequestError
from engine.api.prompt_size import prompt_chars, prompt_too_long
from engine.api.request import GenerationRequest, RawPrompt, Task
from engine.inputs.encoding import PieceEncoder, Prompt, check_characters, cut_ids, cut_pieces, num_kept_tokens
from engine.inputs.escaping import PromptPiece
from engine.inputs.fill_in_the_middle import FillInTheMiddle
from engine.inputs.images import PromptMedia
from engine.inputs.pairs import PairReader
from engine.inputs.sent_tensors import read_matrix
from engine.messages import GIVEN, DefineMedia, MediaSpan
from engine.model_kind import ModelPurpose
from engine.tokenizers.tokenizer import Tokenizer


class RawPromptReader:
    """The maker of raw prompts for one model."""

    def __init__(self, tokenizer: Tokenizer, encoder: PieceEncoder, purpose: ModelPurpose | None = None) -> None:
        """`purpose`: that of the model; None: to chat."""
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._purpose = purpose or ModelPurpose()
        self._pairs = PairReader(tokenizer, encoder, self._purpose)
        self._filling = FillInTheMiddle(tokenizer)

    @property
    def score_ids(self) -> list[int] | None:
        """The tokens for no and yes of a causal reranker; None for other models."""
        return self._pairs.score_ids

    def prompt(self, request: GenerationRequest, raw: RawPrompt, max_model_len: int) -> Prompt:
        """Make the prompt of a request with a raw prompt. Raises RequestError.

        A text that is too long is refused before it is tokenised.
        """
        if raw.embeds is not None:
            return self._of_vectors(request, raw, raw.embeds)
        if raw.document is not None:
            return self._pairs.prompt(request, raw, raw.document, max_model_len)
        num_kept = num_kept_tokens(request.prompt.truncate_to, max_model_len)
        if raw.suffix:
            if num_kept is not None:
                message = (
                    "truncate_prompt_tokens cannot be used with a suffix; send a shorter prompt and suffix instead"
                )
                raise RequestError(ErrorCode.UNSUPPORTED_PARAMETER, message, "truncate_prompt_tokens")
            return self._around_a_gap(request, raw, raw.suffix, max_model_len)
        if raw.token_ids is not None:
            token_ids = list(raw.token_ids)
            return Prompt(
                token_ids if num_kept is None else cut_ids(token_ids, num_kept, request.prompt.truncation_side), None
            )
        text = raw.text.lower() if self._purpose.lowers else raw.text
        pieces = [PromptPiece(text, is_typed=raw.is_ordinary)] if text else []
        self._check(pieces, request, raw.param, max_model_len)
        if num_kept is None:
            return Prompt(
                self._encoder.encode(pieces, request.prompt.add_special_tokens) or self._start(request), raw.text
            )
        if self._purpose.is_encoder and pieces and request.prompt.add_special_tokens:
            cut = cut_pieces(pieces, num_kept, self._tokenizer.longest_token_chars, request.prompt.truncation_side)
            beginning = "".join(piece.text for piece in cut)
            return Prompt(self._tokenizer.encode_cut(beginning, num_kept, request.prompt.truncation_side), None)
        kept, text = self._encoder.encode_truncated(pieces, num_kept, request.prompt)
        return Prompt(kept or self._start(request), text)

    def _of_vectors(self, request: GenerationRequest, raw: RawPrompt, embeds: str) -> Prompt:
        """Make the prompt of vectors. Its tokens only hold their places."""
        if request.prompt.truncate_to is not None:
            message = "truncate_prompt_tokens cannot be combined with prompt_embeds: send the rows that shall count"
            raise RequestError(ErrorCode.INVALID_VALUE, message, "truncate_prompt_tokens")
        sent = read_matrix(embeds, GIVEN, raw.param)
        key = sha256(f"{GIVEN} {sent.content_hash} {request.tenant}".encode()).hexdigest()
        media = PromptMedia(
            (DefineMedia(key, sent.num_rows, [sent.tensor]),),
            (MediaSpan(key, start=0, length=sent.num_rows),),
            given=((raw.param, sent.width),),
        )
        holder = self._tokenizer.bos_id or 0  # penalties count tokens of prompts, and no answer has this one
        return Prompt([holder] * sent.num_rows, "", media=media)

    def _around_a_gap(self, request: GenerationRequest, raw: RawPrompt, suffix: str, max_model_len: int) -> Prompt:
        self._filling.require()
        before = [] if raw.token_ids is not None else [PromptPiece(raw.text, True)]
        self._check([*before, PromptPiece(suffix, True)], request, raw.param, max_model_len)
        prefix_ids = self._encoder.encode(before, False) if raw.token_ids is None else list(raw.token_ids)
        return self._filling.prompt(prefix_ids, suffix, adds_bos=request.prompt.add_special_tokens)

    def _check(self, pieces: list[PromptPiece], request: GenerationRequest, param: str, max_model_len: int) -> None:
        """Refuse text that cannot be tokenised or is too long to fit. Raises RequestError."""
        max_chars = prompt_chars(request, self._tokenizer.longest_token_chars, max_model_len)
        if sum(len(piece.text) for piece in pieces) > max_chars:
            raise prompt_too_long(request, max_chars, max_model_len)
        for piece in pieces:
            check_characters(piece.text, param)
        if request.prompt.truncate_to is None:
            self._encoder.check(pieces, request, max_model_len)

    def _start(self, request: GenerationRequest) -> list[int]:
        """Return [BOS] for an empty text, which the model can continue from, or [] if BOS is missing or not wanted."""
        bos_id = self._tokenizer.bos_id
        wants_one = request.prompt.add_special_tokens and request.task is not Task.READ
        return [bos_id] if wants_one and bos_id is not None else []
