"""Token ids of one choice to text, one by one. Only complete UTF-8 is returned, so every split gives the same text.

Tokens are decoded from their raw bytes. That needs no context of the prompt, because a chat prompt ends with complete
text. Bytes that can never become UTF-8 become U+FFFD, one per maximal part (Unicode 15, section 3.9), as in the
tokenizers library for byte-level tokens. (Of byte tokens, `<0xE9>`, it gives up a whole run with all its good parts.)
"""

from __future__ import annotations

import codecs

from engine.tokenizers.tokenizer import Tokenizer


class Detokenizer:
    """A decoder of one choice: `feed` ids one by one, `flush` at the end.

    Special tokens are left out; if they are kept, `spaces_between` puts a space between two in a row.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True, spaces_between: bool = False) -> None:
        self.controls: frozenset[int] = frozenset()
        """Special tokens that a parser reads: always decoded, never spaced. May change between tokens."""
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._spaces_between = spaces_between
        self._is_after_special = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """Return the text that this token completes; "" within a character."""
        data = self._tokenizer.token_bytes(token_id)
        is_special = self._tokenizer.is_special(token_id) and token_id not in self.controls
        if is_special and self._skip_special_tokens:
            return ""
        if is_special and self._is_after_special and self._spaces_between:
            data = b" " + data
        self._is_after_special = is_special
        return self._decoder.decode(data)

    def flush(self) -> str:
        """Return the text of an incomplete character. Nothing may be fed afterwards."""
        return self._decoder.decode(b"", final=True)

    def preview(self, token_id: int) -> str:
        """Return the text that a token would complete here, without taking it. Special tokens are decoded too."""
        state = self._decoder.getstate()
        text = self._decoder.decode(self._tokenizer.token_bytes(token_id))
        self._decoder.setstate(state)
        return text
