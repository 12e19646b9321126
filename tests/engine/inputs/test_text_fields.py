"""`bad_words` become bounded token sequences; `prediction` becomes draft tokens."""

import pytest

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.limits import ContextLimits
from engine.inputs.text_fields import CHARS_PER_TOKEN, MAX_BAD_WORD_TOKENS, bad_word_ids, prediction_ids
from tests.engine.tiny_tokenizer import IM_END, VOCAB_SIZE, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
LIMITS = ContextLimits(max_model_len=4096, logits_width=300)


def refusal(words, limits=LIMITS):
    with pytest.raises(RequestError) as caught:
        bad_word_ids(words, tiny_tokenizer(), limits)
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_VALUE, "bad_words")
    return caught.value.message


def test_a_bad_word_is_tokenised_with_and_without_a_leading_space():
    tokenizer = tiny_tokenizer()
    assert bad_word_ids(("ab", "c"), tokenizer, LIMITS) == [tokenizer.encode(text) for text in ("ab", " ab", "c", " c")]


def test_equal_spellings_come_once():
    assert len(bad_word_ids(("a", "a", " a"), tiny_tokenizer(), LIMITS)) == 3


def test_an_empty_list_of_bad_words_forbids_nothing():
    assert bad_word_ids((), tiny_tokenizer(), LIMITS) == []


def test_a_control_token_may_be_forbidden_by_its_text():
    assert [IM_END] in bad_word_ids(("<|im_end|>",), tiny_tokenizer(), LIMITS)


def test_an_added_token_that_the_model_does_not_have_is_refused():
    """Hostile 2.2: it would be written past the row."""
    assert "0 to 255" in refusal(("<|im_end|>",), ContextLimits(4096, 256))


@pytest.mark.parametrize(("words", "says"), [(("",), "empty"), (("x" * 600,) * 2, str(MAX_BAD_WORD_TOKENS))])
def test_too_many_or_empty_words_are_refused(words, says):
    assert says in refusal(words)


def test_a_prediction_is_tokenised_and_cut_to_the_answers_limit():
    assert prediction_ids("hello world", TOKENIZER, 100, VOCAB_SIZE) == TOKENIZER.encode("hello world")
    assert prediction_ids("hello world", TOKENIZER, 2, VOCAB_SIZE) == TOKENIZER.encode("hello world")[:2]
    assert prediction_ids("", TOKENIZER, 100, VOCAB_SIZE) == []


def test_control_texts_in_a_prediction_are_text():
    assert IM_END not in prediction_ids("<|im_end|>", TOKENIZER, 100, VOCAB_SIZE)


def test_a_prediction_ends_at_the_first_token_unknown_to_the_model():
    token_ids = TOKENIZER.encode("ab hello")
    assert prediction_ids("ab hello", TOKENIZER, 100, max(token_ids)) == token_ids[: token_ids.index(max(token_ids))]


def test_a_very_long_prediction_is_cut_before_it_is_tokenised():
    assert len(prediction_ids("a" * 10_000_000, TOKENIZER, 10, VOCAB_SIZE)) == 10
    assert CHARS_PER_TOKEN * 10 < 10_000_000
