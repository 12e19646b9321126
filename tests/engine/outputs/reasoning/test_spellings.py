"""A marker is found in whatever tokens it comes, beside spaces and line breaks too."""

import pytest

from engine.outputs.reasoning.spellings import AFTER, BEFORE, marker_spellings
from tests.engine.tiny_tokenizer import THINK, tiny_tokenizer

TEXTS = ("wor", "hello:", "end", "w")


def holds(ids, marker):
    return any(ids[start : start + len(marker)] == marker for start in range(len(ids)))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("after", AFTER)
def test_every_spelling_holds_one_of_those_that_are_returned(text, before, after):
    tokenizer = tiny_tokenizer()
    said = tokenizer.encode(f"so{before}{text}{after}")
    assert any(holds(said, ids) for ids in marker_spellings([text], tokenizer))


def test_the_marker_on_its_own_comes_first_and_no_spelling_holds_another():
    tokenizer = tiny_tokenizer()
    spellings = marker_spellings(["wor", "end"], tokenizer)
    assert spellings == [tokenizer.encode("wor"), tokenizer.encode(" wor"), tokenizer.encode("end")]


def test_a_marker_that_is_a_token_has_one_spelling():
    assert marker_spellings(["<think>"], tiny_tokenizer()) == [[THINK]]
