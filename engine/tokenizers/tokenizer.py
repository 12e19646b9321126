"""Convert text to token ids and back for one model, from a GGUF file or a Hugging Face folder, with the `tokenizers`
library. No torch.

It knows token ids, their bytes and which of them end an answer. Of chat messages it only holds the template's text.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from engine.api.errors import EngineFailure, ErrorCode, ModelLoadError
from engine.gguf_file import GgufFile
from engine.gguf_pair import text_file
from engine.memory import trim_heap
from engine.tokenizers.folder_files import read_object, read_text, read_tokenizer
from engine.tokenizers.gguf_tokenizer import adds_bos, adds_eos, build_tokenizer
from engine.tokenizers.gguf_vocabulary import GgufVocabulary

END_OF_TURN = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"),
    "<turn|>",
    *("<|observation|>", "<start_function_response>", "<|tool_response>"),
)
"""Control tokens that end an answer in the models that have them; behind the last three (GLM-4, FunctionGemma, Gemma 4)
the result of a call would follow.

GGUF files name only one of them (llama.cpp does the same).
"""

MAX_TOKENS = 1 << 20
"""More ids than any model has. Those that a folder lists may lie behind the tokenizer's own, in rows that pad the
vocabulary; grammars hold an entry for each id up to the largest."""

LOCK_CHARS = 4096
"""The longest text that is encoded with the interpreter lock held: about a millisecond."""

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
OTHER_FILES = ("tekken.json", "tokenizer.model", "spiece.model", "tiktoken.model", "vocab.json", "vocab.txt")
"""What folders have that were saved without tokenizer.json."""

PROBE = "a \u0e01\U0001f600"
"""Text that every tokenizer must take. What a file says wrongly shows only here."""

ANCHOR = "\u263a"
"""A character that absorbs the space which some tokenizers put in front of every text. Meta's and Mistral's reference
code do the same."""

CLS, SEP = 101, 102
"""The ids of BERT's first and last token where a file does not name them, as llama.cpp takes them."""
GGUF_NAMES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer. The primary of `eos_ids` comes first.

    `special_tokens` map names to texts, as templates use them (`bos_token`, ...). `architecture` is what the model's
    file calls it, "" if it does not say.
    """

    backend: tokenizers.Tokenizer
    eos_ids: tuple[int, ...]
    bos_id: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    architecture: str = ""
    chat_template: str | None = None
    special_tokens: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_path(cls, path: Path) -> Tokenizer:
        """Read a GGUF file or a folder. Raises ModelLoadError."""
        path = text_file(path)
        tokenizer = cls.from_folder(path) if path.is_dir() else cls.from_gguf(path)
        tokenizer.longest_token_chars, tokenizer._ordinary  # noqa: B018  both take long; no request should wait for them
        trim_heap()  # reading takes more than twice of what is kept
        return tokenizer

    @classmethod
    def from_gguf(cls, path: Path) -> Tokenizer:
        """Read the metadata of a GGUF file. Raises ModelLoadError."""
        return cls.from_metadata(GgufFile.read_metadata(path))

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Build from GGUF keys. Raises ModelLoadError."""
        vocabulary = GgufVocabulary.of(metadata)
        backend = build_tokenizer(vocabulary)
        ids = {name: vocabulary.token_id(key) for name, key in GGUF_NAMES.items()}
        if vocabulary.kind == "bert":  # files may name BERT's own tokens only, or none of them
            ids["bos_token"] = vocabulary.token_id("bos", vocabulary.token_id("cls", CLS))
            ids["eos_token"] = vocabulary.token_id("eos", vocabulary.token_id("seperator", SEP))
        end_of_turn = [vocabulary.token_id("eot"), vocabulary.token_id("eom")]
        chat_template = metadata.get("tokenizer.chat_template")
        if not isinstance(chat_template, str | None):
            raise ModelLoadError("tokenizer.chat_template must be a string")
        return cls(
            backend=backend,
            eos_ids=_unique([ids["eos_token"], *end_of_turn, *_end_of_turn_ids(backend)]),
            bos_id=ids["bos_token"],
            add_bos=adds_bos(vocabulary),
            add_eos=adds_eos(vocabulary),
            architecture=str(metadata.get("general.architecture", "")),
            chat_template=chat_template,
            special_tokens={
                name: vocabulary.tokens[token_id] for name, token_id in ids.items() if token_id is not None
            },
        )

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Read tokenizer.json and what stands beside it. Raises ModelLoadError."""
        if not (folder / "tokenizer.json").is_file():
            found = [name for name in OTHER_FILES if (folder / name).is_file()]
            raise ModelLoadError(
                f"{folder.name} has no tokenizer.json{', only ' if found else ''}{', '.join(found)}; transformers may "
                f"make it: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            )
        contents = read_tokenizer(folder / "tokenizer.json")
        try:
            backend = tokenizers.Tokenizer.from_buffer(contents)
            backend.encode(PROBE)
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:  # the library raises plain Exception, and beside it what its panics are
            raise ModelLoadError(f"{folder.name}/tokenizer.json cannot be read: {error}") from error
        if not backend.get_vocab_size():
            raise ModelLoadError(f"{folder.name}/tokenizer.json has no tokens")
        backend.no_truncation()
        backend.no_padding()
        settings = read_object(folder / "special_tokens_map.json") | read_object(folder / "tokenizer_config.json")
        special_tokens = {name: text for name in SPECIAL_NAMES if (text := _token_text(settings.get(name)))}
        config = read_object(folder / "config.json")
        architectures = config.get("architectures")
        eos_id = backend.token_to_id(special_tokens["eos_token"]) if "eos_token" in special_tokens else None
        bos_id = backend.token_to_id(special_tokens["bos_token"]) if "bos_token" in special_tokens else None
        return cls(
            backend=backend,
            eos_ids=_unique([eos_id, *(_token_id(listed, MAX_TOKENS) for listed in _folder_ends(folder, config))]),
            bos_id=bos_id,
            architecture=str(architectures[0]) if isinstance(architectures, list) and architectures else "",
            chat_template=_folder_template(folder, settings),
            special_tokens=special_tokens,
        )

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of text in which control tokens mean themselves.

        `add_special_tokens` adds BOS and the like.
        """
        ids = _encoded(self.backend, text, add_special_tokens)
        if not add_special_tokens:
            return ids
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids = [self.bos_id, *ids]
        if self.add_eos and self.eos_ids and ids[-1:] != [self.eos_ids[0]]:
            ids = [*ids, self.eos_ids[0]]
        return ids

    def encode_pair(self, first: str, second: str) -> tuple[list[int], int]:
        """Return the token ids of two texts with special tokens, and where the second begins.

        That is 0 if segments do not tell it. Control tokens mean themselves.
        """
        if self.backend.post_processor is None:
            return self._joined(first, second)
        with _panics_refused():
            encoded = self.backend.encode(first, second, add_special_tokens=True)
        return encoded.ids, encoded.type_ids.index(1) if 1 in encoded.type_ids else 0

    def encode_cut(self, text: str, num_kept: int, side: str) -> list[int]:
        """Return at most `num_kept` ids, with special tokens, of the end of a text; "right": of its beginning."""
        with _panics_refused():
            encoded = self.backend.encode(text, add_special_tokens=False)
            num_special = self.backend.num_special_tokens_to_add(False) + len(self._before) + len(self._behind)
            encoded.truncate(max(0, num_kept - num_special), direction=side)
            return [*self._before, *self.backend.post_process(encoded).ids, *self._behind][:num_kept]

    def _joined(self, first: str, second: str) -> tuple[list[int], int]:
        """Return a pair as `encode_pair` does, of a GGUF file, which states no form: that of BERT or of RoBERTa."""
        ids = [*self._before, *self.encode(first), *self._behind]
        is_bert = self._is_word_pieces
        return [*ids, *(() if is_bert else self._behind), *self.encode(second), *self._behind], len(ids) * is_bert

    @property
    def _before(self) -> tuple[int, ...]:
        """The ids that `encode` itself adds in front of a prompt with special tokens, and below, behind it."""
        return (self.bos_id,) if self.add_bos and self.bos_id is not None else ()

    @property
    def _behind(self) -> tuple[int, ...]:
        return self.eos_ids[:1] if self.add_eos else ()

    def beginning_of(self, text: str, num_tokens: int) -> str:
        """Return the part of a text that its first `num_tokens` tokens cover."""
        with _panics_refused():
            offsets = self.backend.encode(text, add_special_tokens=False).offsets
        return text if len(offsets) <= num_tokens else text[: offsets[num_tokens - 1][1]]

    def count(self, text: str) -> int:
        """Return the number of ids of `encode`, without making them."""
        with _panics_refused():
            return len(self.backend.encode_batch_fast([text], add_special_tokens=False)[0])

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the token ids of text that a user typed: no control token can come out."""
        return _encoded(self._ordinary, text, False)

    def without_prefix_space(self, encode: Callable[[str], list[int]], text: str) -> list[int]:
        """Return the ids of a text that follows other text: without the space that `encode` puts in front."""
        if not self.has_prefix_space:
            return encode(text)
        anchor_ids, anchored = encode(ANCHOR), encode(ANCHOR + text)
        return anchored[len(anchor_ids) :] if anchored[: len(anchor_ids)] == anchor_ids else encode(text)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the raw bytes that a token adds to the text; none for ids outside the vocabulary."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._spell(token_id)
        return known

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, control tokens included, without the space that the tokenizer itself puts in front of
        a text.
        """
        text = b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")
        is_spaced = self.has_prefix_space and bool(token_ids) and token_ids[0] not in self._added
        return text.removeprefix(" ") if is_spaced else text

    def is_special(self, token_id: int) -> bool:
        """Return True if `skip_special_tokens` leaves the token out of the text."""
        return token_id in self._special_ids

    @property
    def num_tokens(self) -> int:
        return self.backend.get_vocab_size()

    @cached_property
    def added_texts(self) -> tuple[str, ...]:
        """The texts that `encode` turns into one token wherever they stand, longest first.

        Runs of spaces are left out, also in SentencePiece's spelling (Gemma): merges make the same token of them.
        """
        texts = (token.content for token in self.backend.get_added_tokens_decoder().values())
        return tuple(sorted((text for text in texts if text.strip(" \u2581")), key=len, reverse=True))

    @cached_property
    def beginning(self) -> tuple[int, ...]:
        """The ids that `encode` puts in front of every prompt with special tokens: BOS, or nothing."""
        return (
            (self.bos_id,)
            if self.bos_id is not None and self.bos_id in self.encode("", add_special_tokens=True)
            else ()
        )

    @cached_property
    def has_prefix_space(self) -> bool:
        """True if text gets a space in front before it is tokenised."""
        token_ids = self.encode_ordinary("a")
        return bool(token_ids) and self.token_bytes(token_ids[0]).startswith(b" ")

    @cached_property
    def longest_token_chars(self) -> int:
        """The most characters of a token."""
        return max(len(token) for token in self.backend.get_vocab())

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(
            token_id for token_id, token in self.backend.get_added_tokens_decoder().items() if token.special
        )

    @cached_property
    def _added(self) -> dict[int, str]:
        return {token_id: token.content for token_id, token in self.backend.get_added_tokens_decoder().items()}

    @cached_property
    def _ordinary(self) -> tokenizers.Tokenizer:
        model = self.backend.model
        is_unigram = isinstance(model, tokenizers.models.Unigram)
        copy = tokenizers.Tokenizer(_unigrams_without(self.backend, self.added_texts) if is_unigram else model)
        copy.normalizer = self.backend.normalizer
        copy.pre_tokenizer = self.backend.pre_tokenizer
        return copy

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        return {}

    @cached_property
    def _is_byte_level(self) -> bool:
        return "ByteLevel" in repr(self.backend.decoder)

    @cached_property
    def _is_word_pieces(self) -> bool:
        return "WordPiece" in repr(self.backend.decoder)

    def _spell(self, token_id: int) -> bytes:
        token = self._added.get(token_id) or self.backend.id_to_token(token_id)
        if token is None:
            return b""
        if token_id in self._added and (self._is_byte_level or self._is_word_pieces):
            return token.encode()
        if self._is_byte_level:
            return b"".join(BYTE_OF_CHARACTER.get(character) or character.encode() for character in token)
        if self._is_word_pieces:
            return (token[2:] if token.startswith("##") else f" {token}").encode()
        if byte := BYTE_TOKEN.fullmatch(token):
            return bytes.fromhex(byte[1])
        return token.replace("\u2581", " ").encode()


def _encoded(backend: tokenizers.Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    """Return token ids. Raises EngineFailure if the library gives up on the text.

    The library releases the interpreter lock for batches only; other threads would wait during a long text.
    """
    with _panics_refused():
        if len(text) < LOCK_CHARS:
            return backend.encode(text, add_special_tokens=add_special_tokens).ids
        return backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids


@contextmanager
def _panics_refused() -> Iterator[None]:
    """Raise EngineFailure for a panic of the library, which would end the thread: it is no Exception."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise EngineFailure(ErrorCode.ENGINE_ERROR, "the model's tokenizer cannot read this text") from error


def _unigrams_without(backend: tokenizers.Tokenizer, texts: Sequence[str]) -> tokenizers.models.Unigram:
    """Return the unigrams of a backend without these texts, which other models make of no merges.

    Ids are places, so each gets another text instead, which nobody types.
    """
    model = json.loads(backend.to_str())["model"]
    left_out = frozenset(texts)
    pieces = [(secrets.token_hex(16) if text in left_out else text, score) for text, score in model["vocab"]]
    return tokenizers.models.Unigram(pieces, model["unk_id"], model["byte_fallback"])


def _byte_alphabet() -> dict[str, bytes]:
    """Return GPT-2's spelling of bytes as printable characters (openai/gpt-2, src/encoder.py, MIT)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): bytes([byte]) for byte in printable} | {
        chr(256 + index): bytes([byte]) for index, byte in enumerate(others)
    }


BYTE_OF_CHARACTER = _byte_alphabet()


def _end_of_turn_ids(backend: tokenizers.Tokenizer) -> list[int]:
    added = {token.content: token_id for token_id, token in backend.get_added_tokens_decoder().items()}
    return [added[text] for text in END_OF_TURN if text in added]


def _token_id(value: object, num_tokens: int) -> int | None:
    """Return a special token's id as a file names it, if it names one. Raises ModelLoadError."""
    if value is not None and (type(value) is not int or not 0 <= value < num_tokens):
        raise ModelLoadError(f"the id of a special token must be from 0 to {num_tokens - 1}, got {str(value)[:80]!r}")
    return value


def _unique(ids: list[int | None]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(token_id for token_id in ids if token_id is not None))


def _token_text(token: object) -> str | None:
    """Return the text of a special token, which is a string or an object with `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _folder_ends(folder: Path, config: dict[str, Any]) -> list[Any]:
    """Return what the folder lists as end tokens: in generation_config.json, or without that file in config.json."""
    text_config = config.get("text_config")
    sources = [config, text_config if isinstance(text_config, dict) else {}]
    if (folder / "generation_config.json").is_file():
        sources = [read_object(folder / "generation_config.json")]
    ends = next((source["eos_token_id"] for source in sources if source.get("eos_token_id") is not None), None)
    return ends if isinstance(ends, list) else [ends]


def _folder_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """Return chat_template.jinja, else the setting: one template, or the `default` one of a list."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return read_text(file)
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[-1].get("template") if named else None
    return template if isinstance(template, str) else None
