"""A query and a document to the prompt of a reranker: a pair of texts, or the published prompt of a causal reranker.

Qwen3-Reranker answers yes or no to a prompt that its model card states
(https://huggingface.co/Qwen/Qwen3-Reranker-0.6B). What a client writes in it is ordinary text.
"""

from __future__ import annotations

from engine.api.errors import ModelLoadError
from engine.api.model import ModelKind
from engine.api.prompt_size import MAX_PROMPT_CHARS, context_length_exceeded
from engine.api.request import GenerationRequest, RawPrompt
from engine.inputs.encoding import SPARE_TOKENS, PieceEncoder, Prompt, check_characters
from engine.inputs.escaping import PromptPiece
from engine.model_kind import ModelPurpose
from engine.tokenizers.tokenizer import Tokenizer

BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
ASKED = f"<Instruct>: {INSTRUCTION}\n<Query>: {{}}\n<Document>: {{}}"
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
ANSWERS = ("no", "yes")


class PairReader:
    """The maker of a reranker's prompts."""

    def __init__(self, tokenizer: Tokenizer, encoder: PieceEncoder, purpose: ModelPurpose) -> None:
        """Raises ModelLoadError if the tokenizer of a causal reranker has no token for yes or no."""
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._is_encoder = purpose.is_encoder
        self.score_ids = (
            None
            if purpose.kind is not ModelKind.RERANKER or purpose.is_encoder
            else list(purpose.score_ids or _answer_ids(tokenizer))
        )
        """The tokens for no and yes of a causal reranker."""

    def prompt(self, request: GenerationRequest, raw: RawPrompt, document: str, max_model_len: int) -> Prompt:
        """Make the prompt of a query, `raw.text`, and a document. Raises RequestError.

        A pair that is certainly too long is refused before it is tokenised.
        """
        check_characters(raw.text, "query")
        check_characters(document, raw.param)
        longest = self._tokenizer.longest_token_chars
        if raw.max_document_tokens is not None:
            cut = document[: (raw.max_document_tokens + SPARE_TOKENS) * longest]
            document = self._tokenizer.beginning_of(cut, raw.max_document_tokens)
        if len(raw.text) + len(document) > min(MAX_PROMPT_CHARS, max_model_len * longest):
            raise context_length_exceeded(max_model_len + 1, request, max_model_len)
        token_ids, second_start = self._encode(raw.text, document)
        if len(token_ids) > max_model_len:
            raise context_length_exceeded(len(token_ids), request, max_model_len)
        return Prompt(token_ids, None, second_start=second_start)

    def _encode(self, query: str, document: str) -> tuple[list[int], int]:
        if self._is_encoder:
            return self._tokenizer.encode_pair(query, document)
        pieces = ([PromptPiece(BEFORE)], [PromptPiece(ASKED.format(query, document), True)], [PromptPiece(AFTER)])
        return [token_id for part in pieces for token_id in self._encoder.encode(part, False)], 0


def _answer_ids(tokenizer: Tokenizer) -> list[int]:
    found = [tokenizer.backend.token_to_id(answer) for answer in ANSWERS]
    if None in found:
        raise ModelLoadError(f"the tokenizer of a reranker must have tokens for {' and '.join(ANSWERS)}")
    return [token_id for token_id in found if token_id is not None]
