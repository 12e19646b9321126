"""Predicted texts as draft tokens: no longer than the answer may be, and only what the model can say."""

from engine.inputs.prediction import CHARS_PER_TOKEN, prediction_ids
from tests.engine.tiny_tokenizer import IM_END, VOCAB_SIZE, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def test_a_prediction_is_tokenised_and_cut_to_the_answers_limit():
    assert prediction_ids("hello world", TOKENIZER, 100, VOCAB_SIZE) == TOKENIZER.encode("hello world")
    assert prediction_ids("hello world", TOKENIZER, 2, VOCAB_SIZE) == TOKENIZER.encode("hello world")[:2]
    assert prediction_ids("", TOKENIZER, 100, VOCAB_SIZE) == []


def test_control_texts_in_a_prediction_are_text():
    assert IM_END not in prediction_ids("<|im_end|>", TOKENIZER, 100, VOCAB_SIZE)


def test_a_prediction_ends_where_the_model_has_no_such_token():
    token_ids = TOKENIZER.encode("ab hello")
    assert prediction_ids("ab hello", TOKENIZER, 100, max(token_ids)) == token_ids[: token_ids.index(max(token_ids))]


def test_a_very_long_prediction_is_cut_before_it_is_tokenised():
    assert len(prediction_ids("a" * 10_000_000, TOKENIZER, 10, VOCAB_SIZE)) == 10
    assert CHARS_PER_TOKEN * 10 < 10_000_000
