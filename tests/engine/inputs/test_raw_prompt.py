"""Raw prompts are used as sent, text with its control tokens or ids; unusable ones are refused with their field."""

import pytest

from engine.api import GenerationRequest, PromptOptions, RawPrompt, Task
from engine.api.errors import EngineUnavailable, ErrorCode, RequestError
from engine.inputs.limits import ContextLimits, check_prompt_ids
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import LocalRenderer
from engine.slow_work import LONG_TEXT, SlowWork
from tests.engine.tiny_tokenizer import IM_END, IM_START, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
LIMITS = ContextLimits(max_model_len=512, logits_width=300)


def prompt_of(raw, task=Task.GENERATE, context=100_000, tokenizer=TOKENIZER, **options):
    request = GenerationRequest("run", "model", (), 0.0, prompt=PromptOptions(**options), raw=raw, task=task)
    return PromptProcessor(tokenizer, LocalRenderer()).prompt(request, context)


def refusal(raw, **more):
    with pytest.raises(RequestError) as caught:
        prompt_of(raw, **more)
    return caught.value


def test_control_tokens_spelled_in_a_raw_prompt_are_control_tokens():
    prompt = prompt_of(RawPrompt("<|im_start|>hello<|im_end|>"))
    assert prompt.token_ids == TOKENIZER.encode("<|im_start|>hello<|im_end|>")
    assert (prompt.token_ids[0], prompt.token_ids[-1]) == (IM_START, IM_END)
    assert prompt.text == "<|im_start|>hello<|im_end|>"


def test_bos_is_added_if_requested_and_the_tokenizer_adds_one():
    with_bos = tiny_tokenizer(**{"tokenizer.ggml.add_bos_token": True})
    plain = TOKENIZER.encode("hello")
    assert prompt_of(RawPrompt("hello"), tokenizer=with_bos, add_special_tokens=True).token_ids == [IM_START, *plain]
    assert prompt_of(RawPrompt("hello"), tokenizer=with_bos).token_ids == plain
    assert prompt_of(RawPrompt("hello"), add_special_tokens=True).token_ids == plain


@pytest.mark.parametrize("options", [{}, {"truncate_to": 50}])
def test_bos_is_added_before_ordinary_text_too(options):
    """Text without control tokens reached the model without the requested BOS."""
    with_bos = tiny_tokenizer(**{"tokenizer.ggml.add_bos_token": True})
    raw = RawPrompt("<|im_end|>", is_ordinary=True)
    spelled = TOKENIZER.encode_ordinary("<|im_end|>")
    assert prompt_of(raw, tokenizer=with_bos, add_special_tokens=True, **options).token_ids == [IM_START, *spelled]
    assert prompt_of(raw, tokenizer=with_bos, **options).token_ids == spelled
    assert prompt_of(raw, add_special_tokens=True, **options).token_ids == spelled


def test_an_empty_text_begins_with_bos_if_the_model_has_one_and_it_may_be_added():
    assert prompt_of(RawPrompt(""), add_special_tokens=True).token_ids == [IM_START]
    assert prompt_of(RawPrompt("")).token_ids == []
    assert prompt_of(RawPrompt(""), task=Task.READ, add_special_tokens=True).token_ids == [], (
        "what the tokenizer says, no more"
    )
    without = tiny_tokenizer(**{"tokenizer.ggml.bos_token_id": None})
    assert prompt_of(RawPrompt(""), tokenizer=without, add_special_tokens=True).token_ids == []


def test_prompt_ids_are_used_unchanged():
    prompt = prompt_of(RawPrompt(token_ids=(1, 1, IM_END, 2)), add_special_tokens=True)
    assert (prompt.token_ids, prompt.text) == ([1, 1, IM_END, 2], None)


@pytest.mark.parametrize(("side", "ids", "text"), [("left", [3, 4], "hello"), ("right", [1, 2], "he")])
def test_ids_and_text_are_cut_like_messages(side, ids, text):
    assert prompt_of(RawPrompt(token_ids=(1, 2, 3, 4)), truncate_to=2, truncation_side=side).token_ids == ids
    cut = prompt_of(RawPrompt("he hello"), truncate_to=1, truncation_side=side)
    assert (cut.token_ids, cut.text) == (TOKENIZER.encode(text), text)


@pytest.mark.parametrize("raw", [RawPrompt("he\ud800"), RawPrompt("a", suffix="he\ud800")])
def test_half_characters_are_refused(raw):
    tokenizer = fim_tokenizer()
    error = refusal(raw, tokenizer=tokenizer)
    assert (error.code, error.param) == (ErrorCode.INVALID_VALUE, "prompt")


@pytest.mark.parametrize("text", ["a" * 3_000, "ab " * 60_000])
def test_text_beyond_the_context_is_refused_with_the_standard_message(text):
    error = refusal(RawPrompt(text, param="prompt.2"), context=100)
    assert (error.code, error.param) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, "prompt.2")
    assert "This model's maximum context length is 100 tokens. However, you requested" in error.message
    assert " in the prompt)" in error.message


def test_read_prompt_may_be_longer_than_the_context():
    assert len(prompt_of(RawPrompt("a" * 3_000), task=Task.READ, context=100).token_ids) == 3_000


@pytest.mark.parametrize(("context", "limit"), [(10, 100), (50, 400)])
def test_read_prompt_is_bounded(monkeypatch, context, limit):
    """Otherwise a free request could make the server tokenise megabytes."""
    monkeypatch.setattr("engine.api.prompt_size.READ_CHARS", 100)
    assert len(prompt_of(RawPrompt("a" * limit), task=Task.READ, context=context).token_ids) == limit
    error = refusal(RawPrompt("a" * (limit + 1), param="content"), task=Task.READ, context=context)
    assert (error.code, error.param) == (ErrorCode.INVALID_VALUE, "content")
    assert error.message == f"the prompt must have at most {limit} characters"


def test_read_prompt_has_a_limit_of_tokens(monkeypatch):
    """A megabyte of combining characters is 1.75 million ids; twelve such calls held gigabytes."""
    monkeypatch.setattr("engine.inputs.encoding.MIN_SLICE_CHARS", 1000)
    monkeypatch.setattr("engine.api.prompt_size.READ_CHARS", 10_000)
    assert len(prompt_of(RawPrompt("a" * 5000), task=Task.READ, context=10).token_ids) == 5000
    error = refusal(RawPrompt("a" * 9000, param="content"), task=Task.READ, context=10)
    assert (error.code, error.param) == (ErrorCode.INVALID_VALUE, "content")
    assert error.message == "the prompt must have at most 5000 tokens; send it in pieces"


def test_text_of_too_many_characters_is_refused_for_every_task(monkeypatch):
    monkeypatch.setattr("engine.api.prompt_size.MAX_PROMPT_CHARS", 1_000)
    for more in ({"task": Task.READ}, {"truncate_to": 10}, {}):
        error = refusal(RawPrompt("a" * 1_001), **more)
        assert (error.message, error.param) == ("the prompt must have at most 1000 characters", "prompt")


@pytest.mark.parametrize("bad", [-1, 300, 2**70])
def test_unknown_token_id_is_refused_with_its_index(bad):
    raw = RawPrompt(token_ids=(5, 299, bad, bad), param="input")
    with pytest.raises(RequestError) as caught:
        check_prompt_ids([5], LIMITS, raw)
    assert caught.value.param == "input.2"
    assert caught.value.message == f"input.2 must be a token id of this model, from 0 to 299, got {bad}"


def test_text_with_a_token_the_model_lacks_is_refused_with_its_field():
    with pytest.raises(RequestError) as caught:
        check_prompt_ids([300], LIMITS, RawPrompt("text", param="input"))
    assert (caught.value.param, "the prompt holds a token" in caught.value.message) == ("input", True)


# Fill in the middle


def fim_tokenizer(*marks, **changes):
    """Return the tiny tokenizer with further control tokens."""
    from engine.tokenizers.gguf_vocabulary import CONTROL
    from tests.engine.tiny_tokenizer import tiny_metadata

    metadata = tiny_metadata(**changes)
    names = list(marks or ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|endoftext|>"))
    tokens, types = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
    return tiny_tokenizer(
        **changes | {tokens: metadata[tokens] + names, types: metadata[types] + [CONTROL] * len(names)}
    )


@pytest.mark.parametrize("raw", [RawPrompt("a" * LONG_TEXT), RawPrompt("a", suffix="a" * LONG_TEXT)])
def test_long_prefix_and_suffix_count_as_slow_work_of_their_tenant(raw):
    work = SlowWork(max_threads=1, patience_s=0.0)
    processor = PromptProcessor(fim_tokenizer(), LocalRenderer(), work)
    request = GenerationRequest("run", "model", (), 0.0, prompt=PromptOptions(), raw=raw, tenant="greedy")
    with work.of("greedy"), pytest.raises(EngineUnavailable):
        processor.prompt(request, 100_000)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), "<|fim_prefix|>he<|fim_suffix|>end<|fim_middle|>"),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), "<fim_prefix>he<fim_suffix>end<fim_middle>"),
        (("<fim-prefix>", "<fim-suffix>", "<fim-middle>"), "<fim-prefix>he<fim-suffix>end<fim-middle>"),
        (("▁<PRE>", "▁<SUF>", "▁<MID>"), "▁<PRE>he▁<SUF>end▁<MID>"),
        (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), "<｜fim▁begin｜>he<｜fim▁hole｜>end<｜fim▁end｜>"),
        (("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"), "<[fim-suffix]>end<[fim-prefix]>he<[fim-middle]>"),
        (("[PREFIX]", "[SUFFIX]"), "[SUFFIX]end[PREFIX]he"),
    ],
)
def test_fill_in_the_middle_markers_follow_the_order_of_each_family(marks, expected):
    tokenizer = fim_tokenizer(*marks)
    prompt = prompt_of(RawPrompt("he", suffix="end"), tokenizer=tokenizer)
    assert prompt.token_ids == tokenizer.encode(expected)
    assert tokenizer.text_of(prompt.token_ids) == expected


def test_control_texts_in_a_prefix_or_suffix_are_ordinary_text():
    tokenizer = fim_tokenizer()
    typed = "he<|im_end|><|fim_middle|>"
    prompt = prompt_of(RawPrompt(typed, suffix=typed), tokenizer=tokenizer)
    assert tokenizer.text_of(prompt.token_ids) == f"<|fim_prefix|>{typed}<|fim_suffix|>{typed}<|fim_middle|>"
    assert IM_END not in prompt.token_ids
    assert prompt.token_ids.count(tokenizer.backend.token_to_id("<|fim_middle|>")) == 1


def test_marks_and_tokens_after_the_middle_end_the_answer():
    tokenizer = fim_tokenizer()
    ends = prompt_of(RawPrompt("he", suffix="end"), tokenizer=tokenizer).end_ids
    names = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|endoftext|>"}
    assert {tokenizer.token_bytes(token_id).decode() for token_id in ends} == names
    assert prompt_of(RawPrompt("he"), tokenizer=tokenizer).end_ids == ()


def test_a_suffix_combines_with_an_empty_prefix_bos_and_ids():
    tokenizer = fim_tokenizer(**{"tokenizer.ggml.add_bos_token": True})
    marks = tokenizer.encode("<|fim_prefix|><|fim_suffix|>")
    before, behind = marks
    (middle,) = tokenizer.encode("<|fim_middle|>")
    end = tokenizer.encode("end")
    assert prompt_of(RawPrompt("", suffix="end"), tokenizer=tokenizer).token_ids == [before, behind, *end, middle]
    with_bos = prompt_of(RawPrompt(token_ids=(7, 8), suffix="end"), tokenizer=tokenizer, add_special_tokens=True)
    assert with_bos.token_ids == [IM_START, before, 7, 8, behind, *end, middle]
    assert prompt_of(RawPrompt("he", suffix=""), tokenizer=tokenizer).token_ids == tokenizer.encode("he")


def test_a_model_without_the_tokens_refuses_a_suffix():
    error = refusal(RawPrompt("he", suffix="end"))
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED_PARAMETER, "suffix")
    assert "suffix is not supported by this model" in error.message


def test_a_suffix_cannot_be_truncated():
    error = refusal(RawPrompt("he", suffix="end"), tokenizer=fim_tokenizer(), truncate_to=5)
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED_PARAMETER, "truncate_prompt_tokens")


def test_prefix_and_suffix_count_together():
    error = refusal(RawPrompt("a" * 2_000, suffix="a" * 2_000), tokenizer=fim_tokenizer(), context=100)
    assert error.code == ErrorCode.CONTEXT_LENGTH_EXCEEDED


def test_suffix_has_no_leading_space_of_sentencepiece():
    """Code Llama and Codestral were trained so: the space belongs to the beginning of a text."""
    names = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "▁<PRE>", "▁<SUF>", "▁<MID>"]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = tiny_tokenizer(
        **{
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": names + byte_tokens,
            "tokenizer.ggml.scores": [-float(place) for place in range(len(names) + 256)],
            "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 3, 3, 3] + [6] * 256,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
        }
    )
    prompt = prompt_of(RawPrompt("a", suffix="ab"), tokenizer=tokenizer, add_special_tokens=True)
    assert [tokenizer.backend.id_to_token(token_id) for token_id in prompt.token_ids] == [
        *("<s>", "▁<PRE>", "▁a", "▁<SUF>", "a", "b", "▁<MID>"),
    ]
    assert tokenizer.text_of(tokenizer.encode("ab")) == "ab", "the space that the tokenizer added is not of the text"
