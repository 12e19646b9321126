"""The vocabulary as xgrammar wants it. Imports xgrammar, and with it torch: only the core and a trial process of its own may."""

from __future__ import annotations

from functools import lru_cache

import xgrammar

from engine.structured.backends.vocabulary import Vocabulary


@lru_cache(maxsize=2)
def xgrammar_tokens(vocabulary: Vocabulary) -> xgrammar.TokenizerInfo:
    """Tokens by id; control tokens have no text, so that no grammar can ask for them."""
    tokens = [b"" if token_id in vocabulary.special_ids else token for token_id, token in enumerate(vocabulary.tokens)]
    return xgrammar.TokenizerInfo(
        tokens, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=list(vocabulary.eos_ids)
    )
