"""Build a `tokenizers` tokenizer from the metadata of a GGUF file, which has the vocabulary but not the text rules.

`tokenizer.ggml.pre` names the rules that cut text before merging. The expressions are those of the original tokenizers,
as in llama.cpp (src/llama-vocab.cpp, MIT). Where a file's own tokenizer.json would differ from llama.cpp's reading (NFC
for Qwen2, whole-word look-up for Llama 3), the original counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.api.errors import ModelLoadError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""The values of tokenizer.ggml.token_type."""

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


def _split(expression: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(expression), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _single_digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "olmo": _gpt2,
    "smollm": _single_digits,
    "starcoder": _single_digits,
    "refact": _single_digits,
    "llama-bpe": lambda: _split(LLAMA3_SPLIT),
    "llama3": lambda: _split(LLAMA3_SPLIT),
    "llama-v3": lambda: _split(LLAMA3_SPLIT),
    "qwen2": lambda: _split(QWEN2_SPLIT),
    "deepseek-r1-qwen": lambda: _split(QWEN2_SPLIT),
}
MAX_PIECE_CHARS = 1024
"""The longest SentencePiece token. Every way to cut it in two is tried, so a hostile one would take all memory."""
WHOLE_WORD_FIRST = {"llama-bpe", "llama3", "llama-v3"}
NFC = {"qwen2", "deepseek-r1-qwen"}


def build_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer that `tokenizer.ggml.*` describes, with control and user-defined tokens.

    Raises ModelLoadError.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if not isinstance(kind, str) or kind not in BUILDERS:
        raise ModelLoadError(f"the file's tokenizer is of kind {kind!r}; supported are {', '.join(BUILDERS)}")
    tokens = _strings(metadata, "tokens")
    if not tokens:
        raise ModelLoadError("the file has no vocabulary (tokenizer.ggml.tokens)")
    token_types = metadata.get("tokenizer.ggml.token_type") or []
    if not isinstance(token_types, list) or len(token_types) > len(tokens):
        raise ModelLoadError("tokenizer.ggml.token_type must be a list with one number per token")
    try:
        tokenizer = BUILDERS[kind](metadata)
    except ModelLoadError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise ModelLoadError(f"the file's vocabulary and merges do not fit together: {error}") from error
    marked = [
        (tokens[index], token_type)
        for index, token_type in enumerate(token_types)
        if token_type in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token, token_type in marked if token_type == CONTROL]
    )
    tokenizer.add_tokens(
        [AddedToken(token, normalized=False) for token, token_type in marked if token_type == USER_DEFINED]
    )
    return tokenizer


def _strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    values = metadata.get(f"tokenizer.ggml.{name}") or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ModelLoadError(f"tokenizer.ggml.{name} must be a list of strings")
    return values


def _byte_level(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build byte-level BPE: every token is spelled in GPT-2's alphabet of 256 printable characters."""
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if pre not in PRE_TOKENIZERS:
        raise ModelLoadError(
            f"the file's tokenizer cuts text by rule {pre!r}; supported are {', '.join(PRE_TOKENIZERS)}"
        )
    vocabulary = {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in _strings(metadata, "merges"))]
    model = models.BPE(vocabulary, merges, ignore_merges=pre in WHOLE_WORD_FIRST)
    tokenizer = Tokenizer(model)
    if pre in NFC:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build SentencePiece BPE: spaces are U+2581, unknown characters fall back to byte tokens, merges follow the
    scores.
    """
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.scores")
    token_types = metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens)
    if not scores or len(scores) != len(tokens) or len(token_types) != len(tokens):
        raise ModelLoadError("the file's vocabulary, scores and token types differ in length")
    if max(map(len, tokens)) > MAX_PIECE_CHARS:
        raise ModelLoadError(
            f"a token of the file has {max(map(len, tokens))} characters; at most {MAX_PIECE_CHARS} can be"
        )
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    mergeable = {
        token for token, token_type in zip(tokens, token_types, strict=True) if token_type in (NORMAL, USER_DEFINED)
    }
    merges = _merges_by_score(tokens, scores, mergeable)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", "\u2581")
    with_prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), spaces]) if with_prefix else spaces
    strip = [decoders.Strip(" ", 1, 0)] if with_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges_by_score(tokens: list[str], scores: list[float], mergeable: set[str]) -> list[tuple[str, str]]:
    """Return all ways to build each token of two others, best score first.

    Control and byte tokens are never the result of a merge.
    """
    ids = {token: index for index, token in enumerate(tokens)}
    ranked = []
    for token, score in zip(tokens, scores, strict=True):
        if token not in mergeable:
            continue
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        pairs = [pair for pair in pairs if pair[0] in mergeable and pair[1] in mergeable]
        ranked += [(-score, ids[left], ids[right], (left, right)) for left, right in pairs]
    return [pair for *_, pair in sorted(ranked)]


BUILDERS: dict[str, Callable[[Mapping[str, Any]], Tokenizer]] = {"gpt2": _byte_level, "llama": _sentencepiece}
