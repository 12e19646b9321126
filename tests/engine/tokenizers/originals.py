"""The text rules of models' own tokenizer.json files, by the name that GGUF files give them.

The expressions stand as they do there.
"""

DIGITS = {"type": "Digits", "individual_digits": True}
WORDS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = WORDS | {"use_regex": False}
NFC = {"type": "NFC"}


def split(expression: str) -> dict:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_3 = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
SEED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
LING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
K_EXAONE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
MINICPM = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
JAIS_2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)"
    r"|\s{1,2}(?!\S)|\s{1}"
)
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"

ORIGINALS: dict[str, tuple[dict | None, list[dict], bool]] = {
    "gpt-2": (None, [WORDS], False),
    "olmo": (NFC, [WORDS], False),
    "mpt": (NFC, [WORDS], False),
    "smollm": (None, [DIGITS, WORDS], False),
    "starcoder": (None, [DIGITS, WORDS], False),
    "refact": (None, [DIGITS, WORDS], False),
    "command-r": (NFC, [DIGITS, WORDS], False),
    "falcon": (
        None,
        [
            {"type": "Punctuation", "behavior": "Contiguous"},
            WORDS,
            {"type": "Digits", "individual_digits": False},
            split("[0-9][0-9][0-9]"),
        ],
        False,
    ),
    "llama-bpe": (None, [split(LLAMA_3), BYTES], True),
    "dbrx": (None, [split(LLAMA_3), BYTES], False),
    "smaug-bpe": (None, [split(LLAMA_3), BYTES], False),
    "glm4": (None, [split(LLAMA_3), BYTES], False),
    "qwen2": (NFC, [split(QWEN), BYTES], False),
    "qwen35": (NFC, [split(QWEN_35), BYTES], False),
    "gpt-4o": (None, [split(O200K), BYTES], False),
    "llama4": (None, [split(O200K), BYTES], False),
    "tekken": (None, [split(TEKKEN), BYTES], True),
    "kimi-k2": (None, [split(KIMI), BYTES], True),
    "deepseek-v3": (
        None,
        [split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(DEEPSEEK_3), BYTES],
        False,
    ),
    "deepseek-coder": (
        None,
        [
            split("[\r\n]"),
            split(r"\s?\p{L}+"),
            split(r"\s?\p{P}+"),
            split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
            DIGITS,
            BYTES,
        ],
        False,
    ),
    "seed-coder": (None, [split(SEED), BYTES], False),
    "bailingmoe": (None, [split(LING), BYTES], False),
    "exaone-moe": (None, [split(K_EXAONE), BYTES], False),
    "minicpm5": (None, [split(r"\p{N}{1,3}"), split(MINICPM), BYTES], True),
    "jais-2": (None, [split(JAIS_2), BYTES], False),
    "tiny_aya": (NFC, [split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(O200K), BYTES], False),
    "bloom": (None, [split(BLOOM), BYTES], False),
    "viking": (None, [split(BLOOM), DIGITS, BYTES], False),
}
"""Name -> (normaliser, pre-tokenizers, whether whole words are looked up before merging)."""
