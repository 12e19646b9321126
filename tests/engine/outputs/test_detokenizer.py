"""Any split of the ids gives the same text, in complete UTF-8 only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.outputs.detokenizer import Detokenizer
from tests.engine.tiny_tokenizer import IM_END, IM_START, THINK, VOCAB_SIZE, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
token_ids = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=30)


def whole(ids, skip):
    kept = [token_id for token_id in ids if not (skip and TOKENIZER.is_special(token_id))]
    return b"".join(TOKENIZER.token_bytes(token_id) for token_id in kept).decode(errors="replace")


@given(token_ids, st.booleans())
def test_pieces_join_to_the_text_of_all_bytes(ids, skip):
    detokenizer = Detokenizer(TOKENIZER, skip)
    assert "".join(map(detokenizer.feed, ids)) + detokenizer.flush() == whole(ids, skip)


@given(token_ids)
def test_the_tokenizers_library_decodes_the_same(ids):
    detokenizer = Detokenizer(TOKENIZER)
    text = "".join(map(detokenizer.feed, ids)) + detokenizer.flush()
    assert text == TOKENIZER.backend.decode(ids)


@given(st.text(max_size=20))
def test_every_text_survives_byte_by_byte(text):
    detokenizer = Detokenizer(TOKENIZER)
    pieces = [detokenizer.feed(byte) for byte in text.encode()]
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text
    assert detokenizer.flush() == ""


@given(token_ids, st.integers(0, VOCAB_SIZE - 1))
def test_a_preview_equals_feeding_and_changes_no_state(ids, token_id):
    detokenizer = Detokenizer(TOKENIZER, skip_special_tokens=False)
    for fed in ids:
        detokenizer.feed(fed)
    preview = detokenizer.preview(token_id)
    assert detokenizer.preview(token_id) == preview == detokenizer.feed(token_id)


def test_control_tokens_are_left_out_and_user_defined_ones_are_text():
    assert [Detokenizer(TOKENIZER).feed(token_id) for token_id in (IM_END, THINK)] == ["", "<think>"]
    assert Detokenizer(TOKENIZER, skip_special_tokens=False).feed(IM_END) == "<|im_end|>"


@pytest.mark.parametrize(
    ("spaces", "text"), [(True, "<|im_end|> <|im_end|>a<|im_end|>"), (False, "<|im_end|><|im_end|>a<|im_end|>")]
)
def test_two_control_tokens_are_separated_by_a_space_only_if_requested(spaces, text):
    detokenizer = Detokenizer(TOKENIZER, skip_special_tokens=False, spaces_between=spaces)
    assert "".join(map(detokenizer.feed, [IM_END, IM_END, *b"a", IM_END])) == text


@pytest.mark.parametrize("skip", [True, False])
def test_control_tokens_for_a_parser_are_written_without_spaces(skip):
    detokenizer = Detokenizer(TOKENIZER, skip, spaces_between=True)
    detokenizer.controls = frozenset({IM_END})
    assert "".join(map(detokenizer.feed, [IM_END, IM_END, IM_START])) == "<|im_end|><|im_end|>" + (
        "" if skip else "<|im_start|>"
    )
