"""The tiny tokenizer with further tokens: control tokens, which are special, and markers, which are not."""

from engine.tokenizers.gguf_vocabulary import CONTROL, USER_DEFINED
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.tiny_tokenizer import tiny_metadata


def marked_tokenizer(control=(), markers=(), **changes) -> Tokenizer:
    metadata = tiny_metadata()
    tokens = [*metadata["tokenizer.ggml.tokens"], *control, *markers]
    kinds = [*metadata["tokenizer.ggml.token_type"], *[CONTROL] * len(control), *[USER_DEFINED] * len(markers)]
    return Tokenizer.from_metadata(
        metadata | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds} | changes
    )


def template_of(text):
    """Return the change that gives a tokenizer this chat template."""
    return {"tokenizer.chat_template": text}
