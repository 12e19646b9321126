"""Token ids of one choice to text, as they come: only complete UTF-8 leaves, so any split of the ids gives the same text.

Tokens are spelled as their raw bytes, so no context of the prompt is needed: a chat prompt ends with complete text.
Bytes that can never become UTF-8 come out as U+FFFD, one per maximal part (Unicode 15, section 3.9), as in the tokenizers library.
"""

from __future__ import annotations

import codecs

from engine.tokenizers.tokenizer import Tokenizer


class Detokenizer:
    """`feed` ids one by one; `flush` at the end gives what a cut-off character is worth.

    Special tokens are left out, or else, with `spaces_between`, a space stands between two in a row. `controls` are ids of special
    tokens that a parser reads: they are always spelled out, and never spaced. They may change on the way.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True, spaces_between: bool = False) -> None:
        self.controls: frozenset[int] = frozenset()
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._spaces_between = spaces_between
        self._is_after_special = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """Text that this token completes; often a word, "" within a character."""
        data = self._tokenizer.token_bytes(token_id)
        is_special = self._tokenizer.is_special(token_id) and token_id not in self.controls
        if is_special and self._skip_special_tokens:
            return ""
        if is_special and self._is_after_special and self._spaces_between:
            data = b" " + data
        self._is_after_special = is_special
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is left; nothing may be fed afterwards."""
        return self._decoder.decode(b"", final=True)

    def preview(self, token_id: int) -> str:
        """Text that a token would complete here; changes nothing. Special tokens are spelled out."""
        state = self._decoder.getstate()
        text = self._decoder.decode(self._tokenizer.token_bytes(token_id))
        self._decoder.setstate(state)
        return text
