"""Fill in the middle: the text before a gap and the text after it, between the control tokens of the model's family.

A model supports it if its vocabulary has these tokens. They also determine the order of the parts.

    marks                                    order                    models
    <|fim_prefix|> and so on                 prefix, suffix, middle   Qwen2.5-Coder, CodeGemma, Granite 4
    <fim_prefix> and so on                   prefix, suffix, middle   StarCoder, Granite Code, Refact, Stable Code
    <fim-prefix> and so on                   prefix, suffix, middle   SantaCoder
    ▁<PRE>, ▁<SUF>, ▁<MID>                   prefix, suffix, middle   Code Llama
    <｜fim▁begin｜>, <｜fim▁hole｜>, <｜fim▁end｜>  prefix, suffix, middle   DeepSeek-Coder
    <[fim-prefix]> and so on                 suffix, prefix, middle   Seed-Coder
    [PREFIX], [SUFFIX]                       suffix, prefix           Codestral

From the models' cards and reference code: QwenLM/Qwen2.5-Coder, bigcode-project/starcoder, meta-llama/codellama,
deepseek-ai/DeepSeek-Coder, ByteDance-Seed/Seed-Coder, mistralai/mistral-common. Method: Bavarian et al.,
https://arxiv.org/abs/2207.14255.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.encoding import Prompt
from engine.tokenizers.tokenizer import Tokenizer

ENDS = (
    "<|endoftext|> <|fim_pad|> <fim_pad> <fim-pad> <EOT> ▁<EOT> <|file_sep|> <file_sep> <|file_separator|> "
    "<|repo_name|> <repo_name> <reponame> <filename> <｜end▁of▁sentence｜> <[end▁of▁sentence]> <|end_of_text|>"
).split()
"""Tokens that models write after the middle, besides the marks themselves. They end the answer."""


@dataclass(frozen=True, slots=True)
class _Format:
    """The marks of a family."""

    prefix: str
    suffix: str
    middle: str | None
    """None: the answer follows the second part without a mark."""
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
    """The maker of such prompts for one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        known = tokenizer.backend.token_to_id
        self._tokenizer = tokenizer
        self._format = next(
            (format for format in FORMATS if all(known(text) is not None for text in format.marks)), None
        )
        texts = (*ENDS, *self._format.marks) if self._format else ()
        self._ends = tuple(token_id for text in texts if (token_id := known(text)) is not None)

    def require(self) -> _Format:
        """Return the format of this model. Raises RequestError if it has none."""
        if self._format is None:
            message = (
                "suffix is not supported by this model: its vocabulary has no tokens for filling in the middle; "
                "leave the field out"
            )
            raise RequestError(ErrorCode.UNSUPPORTED_PARAMETER, message, "suffix")
        return self._format

    def prompt(self, prefix_ids: list[int], suffix: str, *, adds_bos: bool) -> Prompt:
        """Make the prompt around a gap. Control tokens that the suffix spells are ordinary text.

        Raises RequestError as `require` does.
        """
        format = self.require()
        before = [self._mark(format.prefix), *prefix_ids]
        after = [self._mark(format.suffix), *self._joined_ids(suffix)]
        parts = [*after, *before] if format.is_suffix_first else [*before, *after]
        middle = [self._mark(format.middle)] if format.middle is not None else []
        return Prompt([*(self._tokenizer.beginning if adds_bos else ()), *parts, *middle], None, self._ends)

    def _joined_ids(self, text: str) -> list[int]:
        return self._tokenizer.without_prefix_space(self._tokenizer.encode_ordinary, text)

    def _mark(self, text: str) -> int:
        token_id = self._tokenizer.backend.token_to_id(text)
        assert token_id is not None
        return token_id
