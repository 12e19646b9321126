"""The tokenizer of a GGUF file equals transformers' tokenizer of the folder that it was made of.

LIGHTCONE_TEST_EXAMPLES=explore compares 10,000 texts with each tokenizer; other runs a part of them, to save minutes.
"""

import os

import pytest
from transformers import PreTrainedTokenizerFast

from engine.api.errors import ModelLoadError
from engine.outputs.detokenizer import Detokenizer
from engine.tokenizers.gguf_vocabulary import CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from engine.tokenizers.split_rules import SPLIT_RULES
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.tiny_tokenizer import tiny_metadata, tiny_tokenizer
from tests.engine.tokenizers import made
from tests.engine.tokenizers.made import SPACE
from tests.engine.tokenizers.originals import ORIGINALS
from tests.engine.tokenizers.scripts import texts
from tests.examples import examples

NUM_TEXTS = 10_000 if os.environ.get("LIGHTCONE_TEST_EXAMPLES") == "explore" else examples(1_000).max_examples
KINDS = {
    "SentencePiece BPE (Llama 2, Mistral 7B)": ("llama", lambda folder: made.write_sentencepiece(folder, "llama")),
    "SentencePiece BPE (Phi-3)": ("llama", lambda folder: made.write_sentencepiece(folder, "phi3")),
    "SentencePiece BPE (Gemma 1 to 3)": ("llama", lambda folder: made.write_sentencepiece(folder, "gemma2")),
    "merges of characters (Gemma 4)": ("gemma4", made.write_gemma_4),
    "unigrams (T5)": ("t5", made.write_unigram),
    "WordPiece (BERT)": ("bert", made.write_wordpiece),
}
"""Models -> (tokenizer.ggml.model, what writes both forms and returns the file's path)."""


def pair(folder, file):
    return Tokenizer.from_path(file), PreTrainedTokenizerFast.from_pretrained(str(folder))


def assert_equal(ours, reference, some):
    expected = reference.backend_tokenizer.encode_batch_fast(some, add_special_tokens=True)
    got = ours.backend.encode_batch_fast(some, add_special_tokens=False)
    for text, ids, other in zip(some, got, expected, strict=True):
        begin, end = [ours.bos_id] * ours.add_bos, list(ours.eos_ids[:1]) * ours.add_eos
        assert [*begin, *ids.ids, *end] == other.ids, (text, other.tokens)


@pytest.mark.parametrize("name", {SPLIT_RULES[name][1]: name for name in ORIGINALS}.values())
def test_byte_level_ids_equal_those_of_the_folder(tmp_path, name):
    ours, reference = pair(tmp_path, made.write_byte_pairs(tmp_path, name, *ORIGINALS[name]))
    ours = Tokenizer(ours.backend, ours.eos_ids)  # these folders add no BOS
    assert_equal(ours, reference, [*texts(NUM_TEXTS), "", " ", "a<think> </s>b"])


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_equal_those_of_the_folder(tmp_path, kind):
    ours, reference = pair(tmp_path, KINDS[kind][1](tmp_path))
    some = [
        text for text in texts(NUM_TEXTS) if kind != "WordPiece (BERT)" or SPACE not in text
    ]  # it marks first pieces
    assert_equal(ours, reference, [*some, "a</s> b", "a<unk> b"])
    folder = Tokenizer.from_path(tmp_path)
    assert list(map(ours.token_bytes, range(ours.num_tokens))) == list(map(folder.token_bytes, range(ours.num_tokens)))
    assert [*filter(ours.is_special, range(ours.num_tokens))] == [*filter(folder.is_special, range(ours.num_tokens))]
    for tokenizer in (ours, folder):  # <unk> stands for characters without a token
        controls = {text for text in tokenizer.added_texts if text.strip() and "unk" not in text.lower()}
        typed = tokenizer.encode_ordinary("".join(controls))
        assert not controls & set(map(tokenizer.backend.id_to_token, typed))
    for text in some[:50]:
        ids = ours.encode(text)
        detokenizer = Detokenizer(ours, skip_special_tokens=False)
        fed = "".join(map(detokenizer.feed, ids)) + detokenizer.flush()
        assert ours.text_of(ids) == (fed.removeprefix(" ") if ours.has_prefix_space else fed)
        if "BPE" in kind or "merges" in kind:
            assert ours.text_of(ids) == text == reference.decode(ids, clean_up_tokenization_spaces=False)


def test_runs_of_spaces_are_no_control_texts(tmp_path):
    """A prompt of Gemma with two spaces in a row was taken for one with a forged control token, and encoded twice."""
    tokenizer = Tokenizer.from_path(made.write_sentencepiece(tmp_path, "gemma2"))
    assert SPACE * 2 in tokenizer.backend.get_vocab()
    assert not any(text.startswith(SPACE) for text in tokenizer.added_texts)
    assert tokenizer.encode("\u00e9  b") == tokenizer.encode_ordinary("\u00e9  b")


def test_prompts_of_gemma_4_begin_with_bos_whatever_the_file_says():
    keys = {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.add_bos_token": False}
    assert Tokenizer.from_metadata(tiny_metadata(**keys)).add_bos


@pytest.mark.parametrize("name", [name for name, (_, rule) in SPLIT_RULES.items() if rule.is_byte_level])
def test_every_rule_keeps_the_text(name):
    tokenizer = tiny_tokenizer(**{"tokenizer.ggml.pre": name})
    for text in texts(20):
        kept = tokenizer.backend.normalizer.normalize_str(text) if tokenizer.backend.normalizer else text
        assert tokenizer.text_of(tokenizer.encode_ordinary(text)) == kept


@pytest.mark.parametrize("rule", dict.fromkeys(rule for _, rule in SPLIT_RULES.values()))
def test_no_text_takes_more_than_its_share_of_time(rule):
    """Rules that looked ahead to the end of a run at each place took minutes for each of these."""
    for text in ("1" * 20_000 + "a", " " * 20_000 + "a", "\n" * 20_000 + "a", "a \u0e01" * 8_000, "aB" * 8_000):
        assert rule.pre_tokenizer().pre_tokenize_str(text)


SENTENCEPIECE = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "a"],
    "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, NORMAL],
    "tokenizer.ggml.scores": [0.0, 0.0, -1.0],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 1,
}
RUNS = [letter * length for letter in "ab" for length in range(1, 1025)]
HOSTILE = {
    "a token twice": ({"tokens": ["<unk>", "a", "a"]}, "both 'a'"),
    "a token twice in another spelling": (
        {"tokens": ["<unk>", "  ", "\u2581\u2581"], "token_type": [UNKNOWN, USER_DEFINED, NORMAL]},
        "mean the same",
    ),
    "too few types": ({"token_type": [UNKNOWN]}, "token_type must be"),
    "types that are no numbers": ({"token_type": ["1", "2", "3"]}, "token_type must be"),
    "too few scores": ({"scores": [0.0]}, "scores must be"),
    "scores that are no numbers": ({"scores": [0.0, float("nan"), 0.0]}, "scores must be"),
    "an unknown token out of range": ({"unknown_token_id": 3}, "unknown_token_id is '3'"),
    "a flag that is a number": ({"add_space_prefix": 7}, "true or false"),
    "tokens that are built of each other": (
        {"tokens": RUNS, "scores": [0.0] * len(RUNS), "token_type": [NORMAL] * len(RUNS)},
        "more ways",
    ),
    "a unigram whose release overflows the stack": (
        {"model": "t5", "tokens": ["<unk>", "<s>", "a" * 1025]},
        "longest token has 1025",
    ),
    "merges of unknown tokens": ({"model": "gpt2", "merges": ["a b"]}, "merge 0 of the file"),
    "no merges": ({"model": "gpt2", "merges": None}, "no merges"),
    "a map that is cut off": ({"model": "t5", "precompiled_charsmap": [0, 4, 0, 0, 1]}, "charsmap is damaged"),
    "a map that leads outside": (
        {"model": "t5", "precompiled_charsmap": [0, 4, 0, 0, *[255] * 1024, 0]},
        "charsmap is damaged",
    ),
    "a kind that is not served": ({"model": "rwkv"}, "'rwkv'.*served are gpt2, gemma4, llama, t5, bert"),
    "a rule that is not known": ({"model": "gpt2", "pre": "invented"}, "'invented'.*original folder"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_vocabulary_that_lies_is_refused_with_the_reason(case):
    changes, reason = HOSTILE[case]
    changes = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    with pytest.raises(ModelLoadError, match=reason):
        Tokenizer.from_metadata(tiny_metadata(**SENTENCEPIECE | changes))
