"""The tokens of a model as the libraries of grammars want them: bytes by id, ends apart, control tokens without text.

Built by the processes that try a constraint and by the core, each for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engine.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    import llguidance


@dataclass(frozen=True)
class Vocabulary:
    """`tokens` by id, as wide as the logits at least; `special_ids` never stand for text; `eos_ids`, one at least, end an answer;
    `encode` is of text without control tokens."""

    tokens: tuple[bytes, ...]
    special_ids: frozenset[int]
    eos_ids: tuple[int, ...]
    encode: Callable[[str], list[int]]

    @classmethod
    def of(cls, tokenizer: Tokenizer, logits_width: int = 0) -> Vocabulary:
        """`logits_width` 0: as many as the tokenizer has."""
        width = max(tokenizer.num_tokens, logits_width, *(token_id + 1 for token_id in tokenizer.eos_ids), 1)
        special_ids = frozenset(token_id for token_id in range(width) if tokenizer.is_special(token_id)) | set(
            tokenizer.eos_ids
        )
        tokens = tuple(tokenizer.token_bytes(token_id) for token_id in range(width))
        return cls(tokens, special_ids, tokenizer.eos_ids or (width - 1,), tokenizer.encode_ordinary)

    @classmethod
    def from_path(cls, path: Path, logits_width: int = 0) -> Vocabulary:
        """Of a model file or folder. Raises ModelLoadError."""
        return cls.of(Tokenizer.from_path(path), logits_width)

    @cached_property
    def llguidance(self) -> llguidance.LLTokenizer:
        """The vocabulary with its trie; takes some tenths of a second to build."""
        import llguidance

        return llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Tokens(self)), n_vocab=len(self.tokens), eos_token=list(self.eos_ids)
        )


class _Tokens:
    """What llguidance asks of a tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_ids[0]
        self.bos_token_id = None
        self.tokens = list(vocabulary.tokens)
        self.special_token_ids = sorted(vocabulary.special_ids)
        self._encode = vocabulary.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)
