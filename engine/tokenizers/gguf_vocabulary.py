"""The vocabulary of a GGUF file, checked: what `tokenizer.ggml.*` says, before a tokenizer is built of it.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

from engine.api.errors import ModelLoadError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""The values of tokenizer.ggml.token_type."""

PREFIX = "tokenizer.ggml."

NO_TOKEN = (-1, (1 << 32) - 1)
"""Ids that converters write for a token that the model does not have."""


@dataclass(frozen=True)
class GgufVocabulary:
    """The entries of a file's vocabulary. Each accessor raises ModelLoadError if what it reads is not as it should be.

    `tokens` and `types` are by id. No token is empty or there twice.
    """

    metadata: Mapping[str, Any]
    tokens: list[str]
    types: list[int]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> GgufVocabulary:
        """Read the tokens and their types. Raises ModelLoadError."""
        tokens = metadata.get(f"{PREFIX}tokens")
        if not tokens or not _all(tokens, str):
            raise ModelLoadError(f"{PREFIX}tokens must be a list of strings, one per token")
        # As in llama.cpp: files pad vocabularies with empty tokens.
        tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]
        ids: dict[str, int] = {}
        for index, token in enumerate(tokens):
            if ids.setdefault(token, index) != index:
                raise ModelLoadError(
                    f"the tokens {ids[token]} and {index} of the file are both {token[:80]!r}; each must be there once"
                )
        types = metadata.get(f"{PREFIX}token_type")
        if types is None:
            types = [NORMAL] * len(tokens)
        if not _all(types, int) or len(types) != len(tokens):
            raise ModelLoadError(f"{PREFIX}token_type must be a list of {len(tokens)} integers, one per token")
        return cls(metadata, tokens, types)

    @property
    def kind(self) -> str:
        """The algorithm: gpt2, llama, ..."""
        return str(self.metadata.get(f"{PREFIX}model"))

    @cached_property
    def ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    @cached_property
    def scores(self) -> list[float]:
        scores = self.metadata.get(f"{PREFIX}scores", [])
        if not _all(scores, (int, float)) or len(scores) != len(self.tokens) or not all(map(isfinite, scores)):
            raise ModelLoadError(f"{PREFIX}scores must be a list of {len(self.tokens)} finite numbers, one per token")
        return scores

    @cached_property
    def merges(self) -> list[tuple[str, str]] | None:
        """The pairs that merge, first the one that merges first; None if the file has none."""
        merges = self.metadata.get(f"{PREFIX}merges")
        if merges is None:
            return None
        if not _all(merges, str):
            raise ModelLoadError(f"{PREFIX}merges must be a list of strings")
        cuts = [merge.find(" ", 1) for merge in merges]
        pairs = [(merge[:cut], merge[cut + 1 :]) for merge, cut in zip(merges, cuts, strict=True)]
        for number, (merge, cut, pair) in enumerate(zip(merges, cuts, pairs, strict=True)):
            if cut < 0 or pair[0] not in self.ids or pair[1] not in self.ids or pair[0] + pair[1] not in self.ids:
                raise ModelLoadError(
                    f"merge {number} of the file, {merge[:80]!r}, must name two tokens of its vocabulary with a space "
                    "between, which are a token together"
                )
        return pairs

    def token_id(self, name: str, default: int | None = None) -> int | None:
        """Return the id that `<name>_token_id` names, if it names one."""
        value = self.metadata.get(f"{PREFIX}{name}_token_id")
        if value is None or value in NO_TOKEN:
            return default if default is None or default < len(self.tokens) else None
        if type(value) is not int or not 0 <= value < len(self.tokens):
            raise ModelLoadError(
                f"the id of a special token must be from 0 to {len(self.tokens) - 1}, but {name}_token_id is "
                f"{str(value)[:80]!r}"
            )
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.metadata.get(f"{PREFIX}{name}", default)
        if not isinstance(value, bool):
            raise ModelLoadError(f"{PREFIX}{name} must be true or false, got {str(value)[:80]!r}")
        return value

    @property
    def charsmap(self) -> bytes:
        """The normaliser of SentencePiece: a trie of texts and what stands for each; b"" if the file has none."""
        values = self.metadata.get(f"{PREFIX}precompiled_charsmap", [])
        if not _all(values, int) or not all(-128 <= value < 256 for value in values):
            raise ModelLoadError(f"{PREFIX}precompiled_charsmap must be a list of bytes")
        charsmap = bytes(value & 255 for value in values)
        if charsmap and not is_charsmap(charsmap):
            raise ModelLoadError(f"{PREFIX}precompiled_charsmap is damaged: its trie does not lead to texts")
        return charsmap


def _all(values: object, kind: type | tuple[type, ...]) -> bool:
    """Return True for a list of values of a type; bools are no numbers."""
    return isinstance(values, list) and not any(isinstance(v, bool) or not isinstance(v, kind) for v in values)


def is_charsmap(charsmap: bytes) -> bool:
    """Return True if no look-up can leave the double-array trie (darts-clone) or the texts behind it.

    Source: SentencePiece, normalizer.cc: the trie's size, its units, then texts that end with NUL.
    """
    if len(charsmap) < 4:
        return False
    num_bytes = struct.unpack_from("<I", charsmap)[0]
    texts = charsmap[4 + num_bytes :]
    if num_bytes % 1024 or not num_bytes or not texts.endswith(b"\0"):
        return False
    units = struct.unpack_from(f"<{num_bytes // 4}I", charsmap, 4)
    for index, unit in enumerate(units):
        if unit >> 31 and index:
            continue  # a value, reached by the unit above it
        target = index ^ (unit >> 10 << ((unit & 0x200) >> 6))
        if target >= len(units):
            return False
        start = units[target] & 0x7FFFFFFF
        if unit >> 8 & 1 and (start >= len(texts) or texts[start] & 0xC0 == 0x80):
            return False
    return True
