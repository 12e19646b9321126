"""Messages in every accepted form become what a template knows; the rest is refused at its exact place."""

import pytest

from chat.dialects.request.messages import messages_walk
from chat.errors import ApiError


def walk(*messages, max_parts=10_000):
    return messages_walk(list(messages), model="tiny", max_parts=max_parts)


def refused(*messages, **kwargs) -> ApiError:
    with pytest.raises(ApiError) as caught:
        walk(*messages, **kwargs)
    return caught.value


def test_strings_and_text_parts_of_every_role_pass():
    content = ["plain", {"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"type": "output_text", "text": "c"}]
    for role in ("system", "developer", "user", "assistant", "tool", "critic", ""):
        (message,) = walk({"role": role, "content": content})
        assert [part["text"] for part in message["content"]] == ["plain", "a", "b", "c"]
        assert message["role"] == role


def test_a_text_part_without_text_is_skipped_and_a_refusal_reads_as_text():
    content = [{"type": "text"}, {"type": "text", "text": None}, {"type": "refusal", "refusal": "no"}]
    assert walk({"role": "assistant", "content": content})[0]["content"] == [{"type": "text", "text": "no"}]


@pytest.mark.parametrize("message", [{"role": "user"}, {"role": "assistant", "content": None}, {"role": "tool"}])
def test_absent_content_is_empty_and_null_is_the_assistants_privilege(message):
    assert walk(message)[0]["content"] == ""


def test_extra_keys_reach_the_template():
    assert walk({"role": "user", "content": "x", "name": "Ann", "mood": 5})[0] == {"role": "user", "content": "x", "name": "Ann", "mood": 5}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (None, "messages.0"),
        ("hi", "messages.0"),
        (5, "messages.0"),
        ({"content": "x"}, "messages.0.role"),
        ({"role": 5}, "messages.0.role"),
        ({"role": "user", "content": None}, "messages.0.content"),
        ({"role": "user", "content": 5}, "messages.0.content"),
        ({"role": "user", "content": {"type": "text"}}, "messages.0.content"),
        ({"role": "user", "content": [None]}, "messages.0.content.0"),
        ({"role": "user", "content": ["a", 5]}, "messages.0.content.1"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "messages.0.content.0.text"),
        ({"role": "user", "content": [{"type": "video_embeds"}]}, "messages.0.content.0.type"),
        ({"role": "user", "content": [{}]}, "messages.0.content.0.type"),
        ({"role": "user", "content": [{"type": []}]}, "messages.0.content.0.type"),
        ({"role": "assistant", "tool_calls": 5}, "messages.0.tool_calls"),
        ({"role": "assistant", "tool_calls": [5]}, "messages.0.tool_calls.0"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "messages.0.tool_calls.0.function"),
        ({"role": "assistant", "function_call": {}}, "messages.0.tool_calls.0.function"),
        ({"role": "assistant", "audio": {"id": "a"}}, "messages.0.audio"),
        ({"role": "assistant", "reasoning": 5}, "messages.0.reasoning"),
    ],
    ids=str,
)
def test_a_bad_message_is_refused_at_its_place(message, param):
    error = refused(message)
    assert (error.status, error.param) == (400, param)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://10.0.0.1/x.png"}},
        {"image_url": "data:image/png;base64,AAAA"},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "x"}},
        {"type": "image_embeds", "image_embeds": "x"},
    ],
    ids=lambda part: next(iter(part)),
)
def test_media_for_a_text_model_is_refused_before_anything_is_fetched(part):
    error = refused({"role": "user", "content": [part]})
    assert error.param.startswith("messages.0.content.0.")
    assert "tiny is not a multimodal model" in error.message


def test_forms_that_come_later_say_so():
    for message in ({"author": {"role": "user"}, "content": ["x"]}, {"role": "user", "content": [{"type": "file", "file": {}}]}):
        error = refused(message)
        assert error.code == "unsupported_parameter"
        assert "not supported yet" in error.message


@pytest.mark.parametrize(
    ("arguments", "read"),
    [('{"a": 1}', {"a": 1}), ("", {}), (None, {}), ("not json", "not json"), ({"a": 1}, {"a": 1}), ("[1", "[1"), ("NaN", "NaN")],
)
def test_arguments_of_calls_are_objects_where_they_can_be(arguments, read):
    (message,) = walk(
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}
    )
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": read}
    assert message["content"] == ""


@pytest.mark.parametrize("arguments", [r'{"a": "\ud800"}', '{"a": 1e999}', '{"a": ' + "9" * 400 + "}", "[" * 300 + "]" * 300])
def test_arguments_that_a_body_could_not_hold_stay_text(arguments):
    """A lone surrogate or an integer beyond 64 bits in here could not be packed for the worker: 500."""
    (message,) = walk({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]})
    assert message["tool_calls"][0]["function"]["arguments"] == arguments


def test_deeply_nested_arguments_stay_text():
    text = "[" * 100_000
    (message,) = walk({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": text}}]})
    assert message["tool_calls"][0]["function"]["arguments"] == text


def test_an_empty_list_of_calls_is_removed_and_a_custom_call_reads_as_a_function():
    assert "tool_calls" not in walk({"role": "assistant", "content": "x", "tool_calls": []})[0]
    (message,) = walk({"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]})
    assert message["tool_calls"] == [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"input": "x"}}}]


def test_the_old_function_form_becomes_a_call_and_its_answer_finds_it():
    call, answer = walk(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "42"},
    )
    assert answer["role"] == "tool"
    assert answer["tool_call_id"] == call["tool_calls"][0]["id"]


def test_thinking_parts_of_the_assistant_are_reasoning_under_both_names():
    content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}]
    (message,) = walk({"role": "assistant", "content": content})
    assert message["reasoning"] == message["reasoning_content"] == "hm"
    assert message["content"] == [{"type": "text", "text": "yes"}]
    assert walk({"role": "user", "content": content})[0]["content"][0] == {"type": "text", "text": "hm"}


def test_a_refusal_is_the_text_of_a_message_without_one():
    assert walk({"role": "assistant", "content": None, "refusal": "no"})[0] == {"role": "assistant", "content": "no"}


def test_parts_are_counted_over_all_messages():
    error = refused({"role": "user", "content": ["a", "b"]}, {"role": "user", "content": ["c"]}, max_parts=2)
    assert error.param == "messages.1.content"


def test_work_stops_at_the_tenth_problem():
    error = refused(*[5] * 100_000)
    assert error.message.count(";") == 9
    assert len(error.message) < 2_000


def test_the_callers_messages_are_left_as_they_were():
    given = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]}
    before = repr(given)
    walk(given)
    assert repr(given) == before
