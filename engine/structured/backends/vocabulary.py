"""The tokens of a model in the form that grammar libraries want: bytes by id, end tokens apart, control tokens without
text.

The children that compile constraints and the core each build their own.
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
    """A model's vocabulary. `tokens` are by id, at least as many as the logits. `special_ids` never stand for text.

    `eos_ids`, at least one, end an answer. `encode` takes text without control tokens.
    """

    tokens: tuple[bytes, ...]
    special_ids: frozenset[int]
    eos_ids: tuple[int, ...]
    encode: Callable[[str], list[int]]

    @classmethod
    def of(cls, tokenizer: Tokenizer, logits_width: int = 0) -> Vocabulary:
        """Build it from a tokenizer. With `logits_width` 0 it has as many tokens as the tokenizer."""
        width = max(tokenizer.num_tokens, logits_width, *(token_id + 1 for token_id in tokenizer.eos_ids), 1)
        special_ids = frozenset(token_id for token_id in range(width) if tokenizer.is_special(token_id)) | set(
            tokenizer.eos_ids
        )
        tokens = tuple(tokenizer.token_bytes(token_id) for token_id in range(width))
        return cls(tokens, special_ids, tokenizer.eos_ids or (width - 1,), tokenizer.encode_ordinary)

    @classmethod
    def from_path(cls, path: Path, logits_width: int = 0) -> Vocabulary:
        """Build it from a model file or folder. Raises ModelLoadError."""
        return cls.of(Tokenizer.from_path(path), logits_width)

    @cached_property
    def llguidance(self) -> llguidance.LLTokenizer:
        """The vocabulary with its trie. Takes some tenths of a second to build."""
        import llguidance

        return llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Tokens(self)), n_vocab=len(self.tokens), eos_token=list(self.eos_ids)
        )


class _Tokens:
    """The tokenizer interface of llguidance."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.eos_ids[0]
        self.bos_token_id = None
        self.tokens = list(vocabulary.tokens)
        self.special_token_ids = sorted(vocabulary.special_ids)
        self._encode = vocabulary.encode

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)
