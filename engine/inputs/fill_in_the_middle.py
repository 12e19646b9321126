"""Fill in the middle: text before a gap and text behind it, between the control tokens that a model was trained with.

A model is taken to know how if its vocabulary has the tokens; which ones they are also tells in which order it learned the parts.

    marks                                    order                    models
    <|fim_prefix|> and so on                 prefix, suffix, middle   Qwen2.5-Coder, CodeGemma, Granite 4
    <fim_prefix> and so on                   prefix, suffix, middle   StarCoder, Granite Code, Refact, Stable Code
    <fim-prefix> and so on                   prefix, suffix, middle   SantaCoder
    ▁<PRE>, ▁<SUF>, ▁<MID>                   prefix, suffix, middle   Code Llama
    <｜fim▁begin｜>, <｜fim▁hole｜>, <｜fim▁end｜>  prefix, suffix, middle   DeepSeek-Coder
    <[fim-prefix]> and so on                 suffix, prefix, middle   Seed-Coder
    [PREFIX], [SUFFIX]                       suffix, prefix           Codestral

From the models' cards and reference code: QwenLM/Qwen2.5-Coder, bigcode-project/starcoder, meta-llama/codellama,
deepseek-ai/DeepSeek-Coder, ByteDance-Seed/Seed-Coder, mistralai/mistral-common. Method: Bavarian et al., https://arxiv.org/abs/2207.14255.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.encoding import Prompt
from engine.tokenizers.tokenizer import Tokenizer

ENDS = (
    *(
        "<|endoftext|>",
        "<|fim_pad|>",
        "<fim_pad>",
        "<fim-pad>",
        "<EOT>",
        "▁<EOT>",
        "<|file_sep|>",
        "<file_sep>",
        "<|file_separator|>",
    ),
    *(
        "<|repo_name|>",
        "<repo_name>",
        "<reponame>",
        "<filename>",
        "<｜end▁of▁sentence｜>",
        "<[end▁of▁sentence]>",
        "<|end_of_text|>",
    ),
)
"""What models write behind the middle, besides the marks themselves: the answer ends there."""

ANCHOR = "☺"
"""A character that takes the space which some tokenizers put in front of every text, as in Meta's and Mistral's reference code."""


@dataclass(frozen=True, slots=True)
class _Format:
    """The marks of a family; `middle` None: the answer follows the second part at once."""

    prefix: str
    suffix: str
    middle: str | None
    is_suffix_first: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.prefix, self.suffix) if self.middle is None else (self.prefix, self.suffix, self.middle)


FORMATS = (
    _Format("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    _Format("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    _Format("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    _Format("▁<PRE>", "▁<SUF>", "▁<MID>"),
    _Format("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    _Format("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", is_suffix_first=True),
    _Format("[PREFIX]", "[SUFFIX]", None, is_suffix_first=True),
)


class FillInTheMiddle:
    """Of one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        known = tokenizer.backend.token_to_id
        self._tokenizer = tokenizer
        self._format = next((form for form in FORMATS if all(known(text) is not None for text in form.marks)), None)
        texts = (*ENDS, *self._format.marks) if self._format else ()
        self._ends = tuple(token_id for text in texts if (token_id := known(text)) is not None)

    def require(self) -> _Format:
        """How this model wants it. Raises RequestError if it cannot do it."""
        if self._format is None:
            message = "suffix is not supported by this model: its vocabulary has no tokens for filling in the middle; leave the field out"
            raise RequestError(ErrorCode.UNSUPPORTED_PARAMETER, message, "suffix")
        return self._format

    def prompt(self, prefix_ids: list[int], suffix: str, *, adds_bos: bool) -> Prompt:
        """The prompt around a gap. Control tokens that the suffix spells are ordinary text. Raises RequestError as `require`."""
        form = self.require()
        before = [self._mark(form.prefix), *prefix_ids]
        behind = [self._mark(form.suffix), *self._joined_ids(suffix)]
        parts = [*behind, *before] if form.is_suffix_first else [*before, *behind]
        middle = [self._mark(form.middle)] if form.middle is not None else []
        return Prompt([*(self._tokenizer.beginning if adds_bos else ()), *parts, *middle], None, self._ends)

    def _joined_ids(self, text: str) -> list[int]:
        """Ids of text that goes on where other text stands before it: without the space that a tokenizer puts in front."""
        token_ids = self._tokenizer.encode_ordinary(text)
        if not self._tokenizer.has_prefix_space:
            return token_ids
        anchor_ids, anchored = self._tokenizer.encode_ordinary(ANCHOR), self._tokenizer.encode_ordinary(ANCHOR + text)
        return anchored[len(anchor_ids) :] if anchored[: len(anchor_ids)] == anchor_ids else token_ids

    def _mark(self, text: str) -> int:
        token_id = self._tokenizer.backend.token_to_id(text)
        assert token_id is not None
        return token_id
