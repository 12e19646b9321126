"""A folder and a GGUF file of one tokenizer: trained here, written as models' authors and the converter do."""

import json
from functools import cache
from pathlib import Path

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.tokenization_utils_base import generate_merges

from engine.tokenizers.gguf_vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from tests.engine.tokenizers.scripts import texts

SPACE = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
END = {"eos_token": "</s>", "bos_token": "<s>"}


@cache
def byte_pairs() -> str:
    """Merges across words, digits and signs, so that each difference between two rules gives other ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=2500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
        max_token_length=12,
    )
    tokenizer.train_from_iterator(texts(3000, seed=2), trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.to_str()


@cache
def pieces() -> tuple[str, ...]:
    """The pieces of a SentencePiece vocabulary, best first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always")
    trainer = trainers.BpeTrainer(vocab_size=2500, show_progress=False, max_token_length=8)
    tokenizer.train_from_iterator(texts(3000, seed=3), trainer)
    ranked = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return tuple(piece for piece, _ in ranked)


def write_folder(folder: Path, tokenizer: Tokenizer | dict, **settings: object) -> Path:
    content = json.dumps(tokenizer) if isinstance(tokenizer, dict) else tokenizer.to_str()
    (folder / "tokenizer.json").write_text(content)
    (folder / "tokenizer_config.json").write_text(json.dumps(END | settings))
    return folder


def write_gguf(
    folder: Path, kind: str, tokens: list[str], types: list[int], architecture="llama", **keys: object
) -> Path:
    """Write a file without tensors. `keys` are of tokenizer.ggml; special ids come from the folder."""
    writer = gguf.GGUFWriter(folder / "m.gguf", architecture)
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for key, value in keys.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, list | bytes):
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
    gguf.SpecialVocab(folder, load_merges=kind in ("gpt2", "gemma4"), n_vocab=len(tokens)).add_to_gguf(
        writer, quiet=True
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return folder / "m.gguf"


def write_byte_pairs(folder: Path, name: str, normalizer: dict | None, steps: list[dict], whole_words: bool) -> Path:
    """Write byte-level BPE with the text rules of a tokenizer.json, and a GGUF file that names them."""
    original = json.loads(byte_pairs())
    original["normalizer"] = normalizer
    original["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    original["model"]["ignore_merges"] = whole_words
    write_folder(folder, original)
    vocabulary = original["model"]["vocab"] | {token["content"]: token["id"] for token in original["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    kinds = {"<s>": CONTROL, "</s>": CONTROL, "<think>": USER_DEFINED}
    return write_gguf(folder, "gpt2", tokens, [kinds.get(token, NORMAL) for token in tokens], pre=name)


def write_sentencepiece(folder: Path, architecture: str) -> Path:
    """Write SentencePiece's BPE as Llama 2, Phi-3 or Gemma have it."""
    is_gemma = architecture == "gemma2"
    runs = ["\n", "\n\n", SPACE * 2, SPACE * 3] if is_gemma else []
    learned = [piece for piece in pieces() if piece not in runs]
    tokens = ["<unk>", "<s>", "</s>", *runs, *BYTES, *learned]
    types = [UNKNOWN, CONTROL, CONTROL, *[USER_DEFINED] * len(runs), *[BYTE] * 256, *[NORMAL] * len(learned)]
    scores = [0.0] * (259 + len(runs)) + [-float(rank) for rank in range(len(learned))]
    ranks = [-float(index) for index in range(len(tokens))] if is_gemma else scores
    mergeable = {token: index for index, token in enumerate(tokens) if types[index] in (NORMAL, USER_DEFINED)}
    merges = generate_merges(mergeable, {token: ranks[index] for token, index in mergeable.items()})
    if architecture == "phi3":
        tokens.append("<|user|>")
        types.append(CONTROL)
        scores.append(-1000.0)
    ids = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = spaces if is_gemma else normalizers.Sequence([normalizers.Prepend(SPACE), spaces])
    strip = [] if is_gemma else [decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>")])
    tokenizer.add_special_tokens([AddedToken("</s>", normalized=False, rstrip=architecture == "phi3")])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in runs])
    if architecture == "phi3":
        tokenizer.add_special_tokens([AddedToken("<|user|>", normalized=False, rstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    write_folder(folder, tokenizer, unk_token="<unk>")
    stored = [
        token.replace(SPACE, " ") if type_ == USER_DEFINED else token
        for token, type_ in zip(tokens, types, strict=True)
    ]
    return write_gguf(
        folder, "llama", stored, types, architecture, scores=scores, add_space_prefix=not is_gemma, pre="default"
    )


def write_gemma_4(folder: Path) -> Path:
    """Write BPE of characters whose merges the file lists."""
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *pieces()]
    ids = {token: index for index, token in enumerate(tokens)}
    merges = generate_merges(
        {piece: ids[piece] for piece in pieces()}, {piece: -float(ids[piece]) for piece in pieces()}
    )
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    write_folder(folder, tokenizer, unk_token="<unk>")
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces())]
    return write_gguf(folder, "gemma4", tokens, types, "gemma4")


def charsmap() -> bytes:
    """A darts-clone trie that maps U+FF21, a wide A, to A: each unit has an offset, a label and a leaf bit."""
    units = [0] * 256
    node = 0
    for offset, byte in enumerate("\uff21".encode(), 1):
        units[node] |= offset << 10
        node = node ^ offset ^ byte
        units[node] = byte
    units[node] |= 4 << 10 | 1 << 8
    units[node ^ 4] = 1 << 31
    return b"".join(unit.to_bytes(4, "little") for unit in (1024, *units)) + b"A\0"


def write_unigram(folder: Path) -> Path:
    """Write unigrams as T5 has them, with a normaliser's map."""
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always")
    trainer = trainers.UnigramTrainer(
        vocab_size=1500, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    trained.train_from_iterator(texts(600, seed=4), trainer)
    vocabulary = [(token, score) for token, score in json.loads(trained.to_str())["model"]["vocab"]]
    tokenizer = Tokenizer(models.Unigram(vocabulary, 2, False))
    tokenizer.normalizer = normalizers.Precompiled(charsmap())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, "always")]
    )
    tokenizer.decoder = decoders.Metaspace(SPACE, "always")
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<pad>", "</s>", "<unk>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    write_folder(folder, tokenizer, unk_token="<unk>", bos_token=None)
    tokens = [token for token, _ in vocabulary]
    types = [CONTROL, CONTROL, UNKNOWN, *[NORMAL] * (len(tokens) - 3)]
    scores = [score for _, score in vocabulary]
    keys = {
        "scores": scores,
        "remove_extra_whitespaces": True,
        "precompiled_charsmap": charsmap(),
        "add_eos_token": True,
    }
    return write_gguf(folder, "t5", tokens, types, "t5", **keys)


def write_wordpiece(folder: Path) -> Path:
    """Write WordPiece as BERT has it; the file marks the first pieces of words instead of the others."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=2500, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([text.replace(SPACE, "") for text in texts(2000, seed=5)], trainer)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    write_folder(folder, tokenizer, unk_token="[UNK]", bos_token="[CLS]", eos_token="[SEP]")
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    stored = [t if t in special else t[2:] if t.startswith("##") else SPACE + t for t in tokens]
    return write_gguf(
        folder, "bert", stored, [CONTROL if t in special else NORMAL for t in tokens], "bert", pre="default"
    )
