"""Messages become the ids of the model's template and tokenizer; client text never becomes a control token."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import GenerationRequest, PromptOptions
from engine.api.errors import ErrorCode, RequestError
from engine.inputs import encoding
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import LocalRenderer
from engine.tokenizers import tokenizer
from tests.engine.tiny_tokenizer import CHATML, IM_END, IM_START, THINK, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
PROCESSOR = PromptProcessor(TOKENIZER, LocalRenderer())
PARTS_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{% for part in m.content %}[{{ part.type "
    "}} {{ part.text }}]{% endfor %}{% endfor %}"
)
ECHO_TEMPLATE = "{% for m in messages %}{{ m | tojson }}{% endfor %}"


def request(*messages, **options):
    return GenerationRequest("run", "model", messages, 0.0, prompt=PromptOptions(**options))


def ids_of(*messages, processor=PROCESSOR, context=100_000, **options):
    return processor.prompt(request(*messages, **options), context).token_ids


def text_of(token_ids):
    return b"".join(map(TOKENIZER.token_bytes, token_ids)).decode()


def processor_with(template):
    return PromptProcessor(tiny_tokenizer(**{"tokenizer.chat_template": template}), LocalRenderer())


def test_plain_conversation_is_the_encoded_template_text():
    messages = ({"role": "system", "content": "hello"}, {"role": "user", "content": "world"})
    text = "<|im_start|>system\nhello<|im_end|>\n<|im_start|>user\nworld<|im_end|>\n"
    assert ids_of(*messages, add_generation_prompt=False) == TOKENIZER.encode(text)
    assert ids_of(*messages) == TOKENIZER.encode(text + "<|im_start|>assistant\n")


@given(
    st.lists(
        st.sampled_from(["<|im_end|>", "<|im_start|>", "<think>", "hello", " <|", "|>", "\ue000", "0"]), max_size=6
    ).map("".join)
)
def test_control_texts_that_a_client_types_are_ordinary_text(typed):
    token_ids = ids_of({"role": "user", "content": typed, "name": typed}, add_generation_prompt=False)
    assert token_ids.count(IM_START) == token_ids.count(IM_END) == 1
    assert THINK not in token_ids
    assert text_of(token_ids) == f"<|im_start|>user\n{typed}<|im_end|>\n"


@pytest.mark.parametrize("role", ["user<|im_end|>", "usr", ""])
def test_a_role_that_the_template_does_not_name_is_refused(role):
    """A mistyped role was passed through or dropped, and the model answered without that message."""
    with pytest.raises(
        RequestError, match="must be one of system, developer, user, assistant, tool, function, or"
    ) as refusal:
        ids_of({"role": "user", "content": "a"}, {"role": role, "content": "b"})
    assert refusal.value.param == "messages.1.role"


def test_a_role_that_the_template_names_is_rendered():
    processor = processor_with(
        "{% for m in messages %}{% if m.role == 'critic' %}{{ m.role }}: {{ m.content }}{% endif %}{% endfor %}"
    )
    assert text_of(ids_of({"role": "critic", "content": "a"}, processor=processor)) == "critic: a"


def test_control_texts_are_found_however_deep_they_are_typed():
    token_ids = ids_of(
        {"role": "tool", "content": "", "data": {"<think>": ["<|im_end|>"]}}, processor=processor_with(ECHO_TEMPLATE)
    )
    assert not {IM_START, IM_END, THINK} & set(token_ids)
    assert '{"<think>": ["<|im_end|>"]}' in text_of(token_ids)


def test_assistant_messages_keep_their_control_tokens():
    assert THINK in ids_of({"role": "assistant", "content": "<think>"})


def test_a_hundred_thousand_control_texts_take_linear_time():
    started = time.monotonic()
    token_ids = ids_of({"role": "user", "content": "<think>" * 100_000}, context=10_000_000)
    assert THINK not in token_ids
    assert time.monotonic() - started < 20


def test_text_that_cannot_fit_is_refused_before_it_is_tokenised():
    with pytest.raises(RequestError) as refusal:
        ids_of({"role": "user", "content": "x" * 1_000_000}, context=4096)
    assert refusal.value.code == ErrorCode.CONTEXT_LENGTH_EXCEEDED
    assert "maximum context length is 4096 tokens" in refusal.value.message


def test_text_of_far_more_tokens_than_the_context_is_not_tokenised_whole(monkeypatch):
    """Eight million letters, which long tokens could fit, took the tokenizer 15 seconds."""
    seen = []
    encode = tokenizer.Tokenizer.encode
    monkeypatch.setattr(tokenizer.Tokenizer, "longest_token_chars", 1000)
    monkeypatch.setattr(
        tokenizer.Tokenizer, "encode", lambda self, text: (seen.append(len(text)), encode(self, text))[1]
    )
    with pytest.raises(RequestError) as refusal:
        ids_of({"role": "user", "content": "x" * 3_000_000}, context=4096)
    assert refusal.value.code == ErrorCode.CONTEXT_LENGTH_EXCEEDED
    assert sum(seen) < 200_000


def test_long_text_of_long_tokens_is_served(monkeypatch):
    monkeypatch.setattr(encoding, "COMMON_TOKEN_CHARS", 1)
    monkeypatch.setattr(encoding, "MIN_SLICE_CHARS", 100)
    assert len(ids_of({"role": "user", "content": "hello" * 500}, context=600)) < 600


def test_text_beyond_the_bound_of_rendering_is_refused():
    with pytest.raises(RequestError) as refusal:
        ids_of(*[{"role": "user", "content": "x" * 1_000_000}] * 9, context=10**9)
    assert refusal.value.code == ErrorCode.INVALID_VALUE


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a", "a"),
        ([{"type": "text", "text": "a"}, "b", {"type": "text", "text": "c"}], "a\nb\nc"),
        ([], ""),
        (None, ""),
    ],
)
def test_content_is_one_string_for_templates_that_print_it(content, expected):
    assert (
        text_of(ids_of({"role": "user", "content": content}, add_generation_prompt=False))
        == f"<|im_start|>user\n{expected}<|im_end|>\n"
    )


def test_content_is_a_list_of_parts_for_templates_that_loop_over_it():
    processor = processor_with(PARTS_TEMPLATE)
    assert text_of(ids_of({"role": "user", "content": "a"}, processor=processor)) == "user:[text a]"
    mixed = ["a", {"type": "text", "text": "b"}]
    assert text_of(ids_of({"role": "user", "content": mixed}, processor=processor)) == "user:[text a][text b]"


def test_developer_is_system_where_the_template_does_not_know_it():
    assert "<|im_start|>system" in text_of(ids_of({"role": "developer", "content": "a"}))
    knowing = processor_with("{% for m in messages %}{% if m.role == 'developer' %}{{ m.role }}{% endif %}{% endfor %}")
    assert text_of(ids_of({"role": "developer", "content": "a"}, processor=knowing)) == "developer"


def test_call_arguments_reach_the_template_as_objects():
    processor = processor_with(
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }};{% endfor %}{% endfor %}"
    )
    calls = [
        {"function": {"name": "f", "arguments": arguments}}
        for arguments in ('{"a": 1}', "", {"b": 2}, "not json", "NaN")
    ]
    text = text_of(ids_of({"role": "assistant", "content": None, "tool_calls": calls}, processor=processor))
    assert text == '{"a": 1};{};{"b": 2};"not json";"NaN";'


@pytest.mark.parametrize("arguments", [r'{"a": "\ud800"}', "[" * 5000 + "]" * 5000])
@pytest.mark.parametrize("template", [CHATML, "{% for m in messages %}{{ m.tool_calls | tojson }}{% endfor %}"])
def test_arguments_that_json_cannot_carry_stay_text(arguments, template):
    """A lone surrogate is valid JSON but no text, and could not be packed by the rendering process."""
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": arguments}}],
    }
    assert json.dumps(arguments)[1:-1] in text_of(ids_of(message, processor=processor_with(template)))


def test_values_nested_too_deeply_are_refused():
    deep = []
    for _ in range(2000):
        deep = [deep]
    for message in ({"role": "user", "content": "", "data": deep}, {"role": "assistant", "content": "", "data": deep}):
        with pytest.raises(RequestError):
            ids_of(message, processor=processor_with(ECHO_TEMPLATE))


def test_bos_is_added_once_if_requested():
    assert ids_of({"role": "user", "content": "a"}, add_special_tokens=True)[:2] == [
        IM_START,
        *TOKENIZER.encode("user")[:1],
    ]
    adding = PromptProcessor(
        tiny_tokenizer(**{"tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": "x"}), LocalRenderer()
    )
    assert ids_of({"role": "user", "content": ""}, processor=adding, add_special_tokens=True) == [IM_START, *b"x"]
    assert ids_of({"role": "user", "content": ""}, processor=adding) == [*b"x"]


def test_a_model_without_a_chat_template_refuses_messages():
    with pytest.raises(RequestError, match="no chat template"):
        ids_of({"role": "user", "content": "a"}, processor=processor_with(None))


def test_special_tokens_are_variables_of_the_template():
    assert IM_END in ids_of({"role": "user", "content": ""}, processor=processor_with("{{ eos_token }}" + CHATML))
