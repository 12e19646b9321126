"""A truncated prompt is the end or the beginning of the whole; text far beyond the limit is never tokenised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import GenerationRequest, PromptOptions, RequestError
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import LocalRenderer
from tests.engine.tiny_tokenizer import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
PROCESSOR = PromptProcessor(TOKENIZER, LocalRenderer())
CONTEXT = 1000


def prompt(text, context=CONTEXT, **options):
    request = GenerationRequest(
        "run", "model", ({"role": "user", "content": text},), 0.0, prompt=PromptOptions(**options)
    )
    return PROCESSOR.prompt(request, context)


@given(st.text("hello wrd<|im_end>é", max_size=60), st.integers(1, 80), st.sampled_from(["left", "right"]))
def test_truncation_keeps_the_end_or_the_beginning(text, num_kept, side):
    whole = prompt(text)
    kept = prompt(text, truncate_to=num_kept, truncation_side=side)
    assert kept.token_ids == (whole.token_ids[-num_kept:] if side == "left" else whole.token_ids[:num_kept])
    if num_kept >= len(whole.token_ids):
        assert kept == whole
    else:
        assert kept.text == b"".join(map(TOKENIZER.token_bytes, kept.token_ids)).decode("utf-8", "replace")


def test_truncate_to_minus_one_keeps_the_context_less_one():
    assert len(prompt("hello " * 5000, context=100, truncate_to=-1).token_ids) == 99


@pytest.mark.parametrize("truncate_to", [CONTEXT + 1, 0, -2, 2**62])
def test_truncating_to_a_value_out_of_range_is_refused(truncate_to):
    with pytest.raises(RequestError, match="from 1 to 1000") as refusal:
        prompt("x", truncate_to=truncate_to)
    assert refusal.value.param == "truncate_prompt_tokens"


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_huge_text_is_cut_before_it_is_tokenised(side, monkeypatch):
    seen = []
    encode = type(TOKENIZER).encode
    monkeypatch.setattr(
        type(TOKENIZER),
        "encode",
        lambda self, text, **options: (seen.append(len(text)), encode(self, text, **options))[1],
    )
    kept = prompt("x" * 5_000_000, truncate_to=10, truncation_side=side)
    assert len(kept.token_ids) == 10
    assert sum(seen) < 10_000


def test_the_tokens_that_the_tokenizer_adds_are_cut_with_the_beginning():
    adding = tiny_tokenizer(**{"tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": "abc"})
    request = GenerationRequest("run", "model", ({"role": "user", "content": ""},), 0.0)
    options = PromptOptions(add_special_tokens=True, truncate_to=2)
    processor = PromptProcessor(adding, LocalRenderer())
    assert processor.prompt(
        GenerationRequest("run", "model", request.messages, 0.0, prompt=options), 100
    ).token_ids == [*b"bc"]
