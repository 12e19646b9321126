"""Bad words become the token sequences that spell them, within limits that are named."""

import pytest

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.bad_words import MAX_TOKENS, bad_word_ids
from engine.inputs.limits import ContextLimits
from tests.engine.tiny_tokenizer import IM_END, tiny_tokenizer

LIMITS = ContextLimits(max_model_len=4096, logits_width=300)


def refusal(words, limits=LIMITS):
    with pytest.raises(RequestError) as caught:
        bad_word_ids(words, tiny_tokenizer(), limits)
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_VALUE, "bad_words")
    return caught.value.message


def test_a_word_is_spelled_as_it_is_and_with_a_leading_space():
    tokenizer = tiny_tokenizer()
    assert bad_word_ids(("ab", "c"), tokenizer, LIMITS) == [tokenizer.encode(text) for text in ("ab", " ab", "c", " c")]


def test_equal_spellings_come_once():
    assert len(bad_word_ids(("a", "a", " a"), tiny_tokenizer(), LIMITS)) == 3


def test_nothing_is_forbidden_without_words():
    assert bad_word_ids((), tiny_tokenizer(), LIMITS) == []


def test_a_control_token_may_be_forbidden_by_its_text():
    assert [IM_END] in bad_word_ids(("<|im_end|>",), tiny_tokenizer(), LIMITS)


def test_an_added_token_that_the_model_does_not_have_is_refused():
    """Hostile 2.2: it would be written past the row."""
    assert "0 to 255" in refusal(("<|im_end|>",), ContextLimits(4096, 256))


@pytest.mark.parametrize(("words", "says"), [(("",), "empty"), (("x" * 600,) * 2, str(MAX_TOKENS))])
def test_too_many_or_empty_words_are_refused(words, says):
    assert says in refusal(words)
