"""Markers are found in any tokenisation, also beside spaces and line breaks."""

import pytest

from engine.outputs.reasoning.registry import AFTER, BEFORE, marker_spellings
from tests.engine.outputs.marked_tokenizer import marked_tokenizer
from tests.engine.tiny_tokenizer import THINK, tiny_tokenizer

TEXTS = ("wor", "hello:", "end", "w")


def holds(ids, marker):
    return any(ids[start : start + len(marker)] == marker for start in range(len(ids)))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("after", AFTER)
def test_every_tokenised_marker_contains_a_returned_spelling(text, before, after):
    tokenizer = tiny_tokenizer()
    said = tokenizer.encode(f"so{before}{text}{after}")
    assert any(holds(said, ids) for ids in marker_spellings([text], tokenizer))


def test_the_bare_marker_comes_first_and_no_spelling_contains_another():
    tokenizer = tiny_tokenizer()
    spellings = marker_spellings(["wor", "end"], tokenizer)
    assert spellings == [tokenizer.encode("wor"), tokenizer.encode(" wor"), tokenizer.encode("end")]


def test_a_marker_that_is_a_token_has_one_spelling():
    assert marker_spellings(["<think>"], tiny_tokenizer()) == [[THINK]]


def merging_tokenizer():
    """Return a tokenizer that merges the edges of a tag with neighbouring characters, as large vocabularies do."""
    plain = marked_tokenizer()
    known = [token for token, _ in sorted(plain.backend.get_vocab().items(), key=lambda item: item[1])]
    order = ["< /", "t h", "i n", "th in", "thin k", "Ċ Ċ", "> Ċ", "> ĊĊ", "Ċ </", ". </"]
    tokens = [*known[:256], *(merge.replace(" ", "") for merge in order), "<|im_start|>", "<|im_end|>"]
    kinds = [1] * (len(tokens) - 2) + [3, 3]
    return marked_tokenizer(
        **{
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.merges": order,
            "tokenizer.ggml.bos_token_id": len(tokens) - 2,
            "tokenizer.ggml.eos_token_id": len(tokens) - 1,
        }
    )


@pytest.mark.parametrize("before", ["a", "a ", "a.", "a\n", "a.\n\n"])
@pytest.mark.parametrize("after", ["b", "\nb", "\n\nb", " b", ""])
def test_end_tag_merged_with_neighbouring_tokens_is_found(before, after):
    tokenizer = merging_tokenizer()
    said = tokenizer.encode(f"{before}</think>{after}")
    assert any(holds(said, ids) for ids in marker_spellings(["</think>"], tokenizer))
    assert not any(
        holds(tokenizer.encode(f"{before}</thin>{after}"), ids) for ids in marker_spellings(["</think>"], tokenizer)
    )
