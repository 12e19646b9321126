"""The vocabulary in xgrammar's form.

Imports xgrammar, and with it torch: only the core and a child of its own may import this.
"""

from __future__ import annotations

from functools import lru_cache

import xgrammar

from engine.structured.backends.vocabulary import Vocabulary


@lru_cache(maxsize=2)
def xgrammar_tokens(vocabulary: Vocabulary) -> xgrammar.TokenizerInfo:
    """Return the tokens by id. Control tokens have no text, so that no grammar can ask for them."""
    tokens = [b"" if token_id in vocabulary.special_ids else token for token_id, token in enumerate(vocabulary.tokens)]
    return xgrammar.TokenizerInfo(
        tokens, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=list(vocabulary.eos_ids)
    )
