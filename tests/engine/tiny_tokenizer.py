"""A byte-level tokenizer of a few hundred tokens, as if from a GGUF file.

Token i < 256 is byte i; merges and then control tokens follow.
"""

from pathlib import Path

from engine.tokenizers.gguf_vocabulary import CONTROL, NORMAL, USER_DEFINED
from engine.tokenizers.tokenizer import BYTE_OF_CHARACTER, Tokenizer

ALPHABET = sorted(BYTE_OF_CHARACTER, key=lambda character: BYTE_OF_CHARACTER[character])
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "e n", "en d", "Ã ©"]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' "
    "}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NUM_BYTES, IM_START, IM_END, THINK = 256, 256 + len(MERGES), 257 + len(MERGES), 258 + len(MERGES)
VOCAB_SIZE = THINK + 1


def tiny_metadata(**changes: object) -> dict[str, object]:
    tokens = ALPHABET + [merge.replace(" ", "") for merge in MERGES] + ["<|im_start|>", "<|im_end|>", "<think>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [NORMAL] * (len(tokens) - 3) + [CONTROL, CONTROL, USER_DEFINED],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": IM_START,
        "tokenizer.ggml.eos_token_id": IM_END,
        "tokenizer.chat_template": CHATML,
    } | changes


def write_tokenizer(folder: Path) -> None:
    """Write the tokenizer's files into the folder of a model."""
    tiny_tokenizer().backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    (folder / "chat_template.jinja").write_text(CHATML)


def tiny_tokenizer(**changes: object) -> Tokenizer:
    return Tokenizer.from_metadata(tiny_metadata(**changes))
