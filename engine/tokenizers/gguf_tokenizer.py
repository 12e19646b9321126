"""Build a `tokenizers` tokenizer from the metadata of a GGUF file: byte-level BPE, SentencePiece's BPE and unigrams,
WordPiece.

The file has the vocabulary, but not the text rules: they follow from `tokenizer.ggml.model` and `tokenizer.ggml.pre`.
Where the model's own tokenizer.json is known to differ from llama.cpp's reading of the file, it counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.api.errors import ModelLoadError
from engine.tokenizers.gguf_vocabulary import BYTE, CONTROL, NORMAL, PREFIX, UNKNOWN, USER_DEFINED, GgufVocabulary
from engine.tokenizers.split_rules import SPLIT_RULES, SplitRule

logger = logging.getLogger(__name__)

SPACE = "\u2581"
"""SentencePiece's spelling of a space."""
MAX_PIECE_CHARS = 1024
"""The longest SentencePiece token. Every way to cut it in two is tried, so a hostile one would take all memory; and the
library frees a unigram recursively, character by character, until the stack overflows."""
MAX_VOCABULARY_CHARS = 4 << 20
"""The most characters of all SentencePiece tokens together, twice those of Gemma 3, for the same reason."""
MAX_MERGE_CHARS = 64 << 20
"""The most characters of all pairs of tokens that merge, ten times those of Gemma 3."""
MAX_WORD_CHARS = 100
"""WordPiece takes a word of more characters for unknown."""
TAKES_SPACES_BEHIND = {"phi3"}
"""Architectures whose SentencePiece models drop white space behind most control tokens; their files do not say so."""
RANKED_BY_ID = {"gemma", "gemma2", "gemma3", "gemma3n", "gemma-embedding"}
"""Architectures whose tokens merge in the order of their ids: their files give some tokens a score of their own."""


def build_tokenizer(vocabulary: GgufVocabulary) -> Tokenizer:
    """Return the tokenizer of a file, with control, unknown and user-defined tokens. Raises ModelLoadError."""
    kind = vocabulary.kind
    if kind not in BUILDERS:
        raise ModelLoadError(
            f"the file's tokenizer is of the kind {kind[:80]!r} (tokenizer.ggml.model); served are "
            f"{', '.join(BUILDERS)}; a folder of the same model with its tokenizer.json may be"
        )
    try:
        tokenizer = BUILDERS[kind](vocabulary)
    except ModelLoadError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise ModelLoadError(f"the file's vocabulary and merges do not fit together: {error}") from error
    takes_spaces = kind == "llama" and vocabulary.metadata.get("general.architecture") in TAKES_SPACES_BEHIND
    for add, wanted in (
        (tokenizer.add_special_tokens, (CONTROL, UNKNOWN)),
        (tokenizer.add_tokens, (USER_DEFINED,)),
    ):
        texts = [
            _piece(token, token_type) if kind == "llama" else token
            for token, token_type in zip(vocabulary.tokens, vocabulary.types, strict=True)
            if token_type in wanted
        ]
        add(
            [
                AddedToken(
                    text, normalized=False, rstrip=takes_spaces and text not in ("<unk>", "<s>", "<|endoftext|>")
                )
                for text in texts
            ]
        )
    return tokenizer


def adds_bos(vocabulary: GgufVocabulary) -> bool:
    """Return True if prompts begin with BOS: as the file says, else as llama.cpp takes its kind and rule.

    Gemma 4's always do: its first files deny it.
    """
    kind = vocabulary.kind
    if kind == "gemma4":
        return True
    default = kind in ("llama", "bert") or (kind in BYTE_PAIR_KINDS and _rule(vocabulary).adds_bos)
    return vocabulary.flag("add_bos_token", default)


def adds_eos(vocabulary: GgufVocabulary) -> bool:
    """Return True if prompts end with EOS (SEP of WordPiece)."""
    return vocabulary.flag("add_eos_token", vocabulary.kind in ("t5", "bert"))


def _rule(vocabulary: GgufVocabulary) -> SplitRule:
    name = vocabulary.metadata.get(f"{PREFIX}pre", "default")
    if vocabulary.kind == "gemma4":
        name = "gemma4"
    if not isinstance(name, str) or name not in SPLIT_RULES:
        raise ModelLoadError(
            f"the file's tokenizer cuts text by the rule {str(name)[:80]!r} (tokenizer.ggml.pre), which is not known; "
            f"the model's original folder with its tokenizer.json may serve it; known are {', '.join(SPLIT_RULES)}"
        )
    if name == "default":
        logger.warning(
            "the file does not say how its tokenizer cuts text (tokenizer.ggml.pre); llama.cpp's guess is used"
        )
    return SPLIT_RULES[name][1]


def _byte_pairs(vocabulary: GgufVocabulary) -> Tokenizer:
    """Build BPE by merges: every token is spelled in GPT-2's alphabet of 256 printable characters, or in characters."""
    rule = _rule(vocabulary)
    if vocabulary.merges is None:
        raise ModelLoadError("the file has no merges (tokenizer.ggml.merges), which its kind of tokenizer needs")
    if not rule.is_byte_level:
        return _characters(vocabulary, vocabulary.merges, with_prefix=False)
    tokenizer = Tokenizer(models.BPE(vocabulary.ids, vocabulary.merges, ignore_merges=rule.takes_whole_words))
    if rule.is_nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = rule.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(vocabulary: GgufVocabulary) -> Tokenizer:
    """Build SentencePiece's BPE, in which merges follow the scores."""
    return _characters(vocabulary, _merges_by_score(vocabulary), vocabulary.flag("add_space_prefix", True))


def _characters(vocabulary: GgufVocabulary, merges: list[tuple[str, str]], with_prefix: bool) -> Tokenizer:
    """Build BPE of characters: spaces are U+2581, characters without a token fall back to byte tokens."""
    pieces = list(map(_piece, vocabulary.tokens, vocabulary.types))
    ids = _ids(pieces)
    unknown = pieces[vocabulary.token_id("unknown", 0) or 0]
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if with_prefix else spaces
    strip = [decoders.Strip(" ", 1, 0)] if with_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _piece(token: str, token_type: int) -> str:
    """Return a token as the model spells it: files write user-defined tokens of spaces (Gemma) as spaces."""
    return SPACE * len(token) if token_type == USER_DEFINED and not token.strip(" ") else token


def _ids(pieces: list[str]) -> dict[str, int]:
    ids = {piece: index for index, piece in enumerate(pieces)}
    if len(ids) != len(pieces) or "" in ids:
        raise ModelLoadError("two tokens of the file mean the same: with spaces or marks spelled out, and without")
    return ids


def _merges_by_score(vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    """Return all ways to build each token of two others, best score first, then by id, the longest left part first.

    Control and byte tokens are never the result of a merge. Tokens that all have one score merge in the order of their
    ids.
    """
    tokens = list(map(_piece, vocabulary.tokens, vocabulary.types))
    check_lengths(tokens)
    mergeable = {
        token: index
        for index, (token, type_) in enumerate(zip(tokens, vocabulary.types, strict=True))
        if type_ in (NORMAL, USER_DEFINED)
    }
    order = sorted(mergeable, key=mergeable.__getitem__)
    if vocabulary.metadata.get("general.architecture") not in RANKED_BY_ID:
        order.sort(key=lambda token: -vocabulary.scores[mergeable[token]])
    merges: list[tuple[str, str]] = []
    num_chars = 0
    for token in order:
        pairs = [(token[:cut], token[cut:]) for cut in range(len(token) - 1, 0, -1)]
        pairs = [pair for pair in pairs if pair[0] in mergeable and pair[1] in mergeable]
        num_chars += len(pairs) * len(token)
        if num_chars > MAX_MERGE_CHARS:
            raise ModelLoadError("the file's tokens can be cut into each other in more ways than any real vocabulary's")
        merges += pairs
    return merges


def check_lengths(tokens: list[str], source: str = "the file") -> None:
    """Raise ModelLoadError for tokens that would take all memory, or overflow the stack when they are freed."""
    longest, total = max(map(len, tokens), default=0), sum(map(len, tokens))
    if longest > MAX_PIECE_CHARS or total > MAX_VOCABULARY_CHARS:
        raise ModelLoadError(
            f"{source}: the longest token has {longest} characters, all have {total} together; at most "
            f"{MAX_PIECE_CHARS} and {MAX_VOCABULARY_CHARS} can be"
        )


def _unigram(vocabulary: GgufVocabulary) -> Tokenizer:
    """Build SentencePiece's unigram model: of all ways to cut a text, the one of the highest sum of scores."""
    check_lengths(vocabulary.tokens)
    with_prefix = "always" if vocabulary.flag("add_space_prefix", True) else "never"
    pieces = list(zip(vocabulary.tokens, map(float, vocabulary.scores), strict=True))
    tokenizer = Tokenizer(models.Unigram(pieces, vocabulary.token_id("unknown", 2), BYTE in vocabulary.types))
    if charsmap := vocabulary.charsmap:
        tokenizer.normalizer = normalizers.Precompiled(charsmap)
    words = [pre_tokenizers.WhitespaceSplit()] if vocabulary.flag("remove_extra_whitespaces", False) else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*words, pre_tokenizers.Metaspace(SPACE, with_prefix)])
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(SPACE, with_prefix)])
    return tokenizer


def _wordpiece(vocabulary: GgufVocabulary) -> Tokenizer:
    """Build WordPiece: the longest token at each place. Files mark the first piece of a word, the library others."""
    pieces = [
        token.removeprefix(SPACE)
        if token.startswith(SPACE) or type_ != NORMAL or (token.startswith("[") and token.endswith("]"))
        else f"##{token}"
        for token, type_ in zip(vocabulary.tokens, vocabulary.types, strict=True)
    ]
    ids = _ids(pieces)
    unknown = vocabulary.tokens[vocabulary.token_id("unknown", 100) or 0]
    if unknown not in ids:
        raise ModelLoadError(f"the file's token for unknown words, {unknown[:80]!r}, must be a control token")
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=unknown, max_input_chars_per_word=MAX_WORD_CHARS))
    lowercase = vocabulary.flag("normalizer.lowercase", True)
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=vocabulary.flag("normalizer.strip_accents", lowercase)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


BYTE_PAIR_KINDS = ("gpt2", "gemma4")
BUILDERS: dict[str, Callable[[GgufVocabulary], Tokenizer]] = {
    "gpt2": _byte_pairs,
    "gemma4": _byte_pairs,
    "llama": _sentencepiece,
    "t5": _unigram,
    "bert": _wordpiece,
}
"""tokenizer.ggml.model -> what builds it."""
