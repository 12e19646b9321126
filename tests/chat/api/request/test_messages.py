"""Messages in every accepted form become template messages; others are refused at their exact place."""

import pytest

from chat.api.request.image_parts import MediaRules
from chat.api.request.messages import last_message_text, messages_walk
from chat.errors import ApiError


def walk(*messages, max_parts=10_000):
    return messages_walk(list(messages), model="tiny", max_parts=max_parts)


def refused(*messages, **kwargs) -> ApiError:
    with pytest.raises(ApiError) as caught:
        walk(*messages, **kwargs)
    return caught.value


def test_strings_and_text_parts_of_every_role_pass():
    content = [
        "plain",
        {"type": "text", "text": "a"},
        {"type": "input_text", "text": "b"},
        {"type": "output_text", "text": "c"},
    ]
    for role in ("system", "developer", "user", "assistant", "tool", "critic", ""):
        (message,) = walk({"role": role, "content": content})
        assert [part["text"] for part in message["content"]] == ["plain", "a", "b", "c"]
        assert message["role"] == role


def test_a_text_part_without_text_is_skipped_and_a_refusal_reads_as_text():
    content = [{"type": "text"}, {"type": "text", "text": None}, {"type": "refusal", "refusal": "no"}]
    assert walk({"role": "assistant", "content": content})[0]["content"] == [{"type": "text", "text": "no"}]


@pytest.mark.parametrize("message", [{"role": "user"}, {"role": "assistant", "content": None}, {"role": "tool"}])
def test_absent_content_is_empty_and_only_assistants_may_send_null(message):
    assert walk(message)[0]["content"] == ""


def test_null_labels_count_as_absent():
    walk({"role": "assistant", "content": "x", "name": None, "refusal": None, "audio": None})
    walk({"role": "tool", "content": "x", "tool_call_id": None})


def test_extra_keys_reach_the_template():
    assert walk({"role": "user", "content": "x", "name": "Ann", "mood": 5})[0] == {
        "role": "user",
        "content": "x",
        "name": "Ann",
        "mood": 5,
    }


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
        ({"role": "user", "content": [{"type": "video_embeds"}]}, "messages.0.content.0"),
        ({"role": "user", "content": [{}]}, "messages.0.content.0"),
        ({"role": "user", "content": [{"type": []}]}, "messages.0.content.0"),
        ({"role": "user", "content": "x", "name": 5}, "messages.0.name"),
        ({"role": "assistant", "refusal": 5}, "messages.0.refusal"),
        ({"role": "assistant", "content": "x", "audio": "a"}, "messages.0.audio"),
        ({"role": "tool", "content": "x", "tool_call_id": 5}, "messages.0.tool_call_id"),
        ({"role": "assistant", "tool_calls": 5}, "messages.0.tool_calls"),
        ({"role": "assistant", "tool_calls": [5]}, "messages.0.tool_calls.0"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "messages.0.tool_calls.0.function"),
        ({"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "f"}}]}, "messages.0.tool_calls.0.id"),
        (
            {"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]},
            "messages.0.tool_calls.0.custom",
        ),
        ({"role": "assistant", "function_call": {}}, "messages.0.function_call"),
        (
            {"role": "assistant", "function_call": {"name": "f"}, "tool_calls": [{"function": {"name": "f"}}]},
            "messages.0.function_call",
        ),
        ({"role": "assistant", "audio": {"id": "a"}}, "messages.0.audio"),
        ({"role": "assistant", "reasoning": 5}, "messages.0.reasoning"),
        ({"role": "assistant", "reasoning_content": []}, "messages.0.reasoning_content"),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": 5}]}, "messages.0.content.0.thinking"),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "closed": "no"}]},
            "messages.0.content.0.closed",
        ),
        ({"role": "critic", "tool_calls": [{}]}, "messages.0.tool_calls.0.function"),
        ({"role": "critic", "tools": [{"type": "function"}]}, "messages.0.tools.0"),
        ({"role": "developer", "tools": 5}, "messages.0.tools"),
        ({"role": "user", "content": [{"type": "file"}]}, "messages.0.content.0.file"),
        ({"role": "user", "content": [{"type": "file", "file": {}}]}, "messages.0.content.0.file"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_data": ""}}]}, "messages.0.content.0.file"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_data": 5}}]}, "messages.0.content.0.file"),
        (
            {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]},
            "messages.0.content.0.file.file_id",
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"file_data": "eA==", "filename": "a\nb"}}]},
            "messages.0.content.0.file",
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"file_data": "eA==", "filename": 5}}]},
            "messages.0.content.0.file",
        ),
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


def test_a_file_reaches_the_worker_unchanged_with_its_place():
    part = {"type": "file", "file": {"file_data": "eA==", "filename": "a.txt", "more": 1}}
    (message,) = walk({"role": "user", "content": ["see", {"type": "text"}, part]})
    sent = {"file_data": "eA==", "filename": "a.txt"}
    assert message["content"][1] == {"type": "file", "file": sent, "param": "messages.0.content.2.file"}


def test_a_file_beyond_the_limit_is_refused_without_decoding():
    error = refused({"role": "user", "content": [{"type": "file", "file": {"file_data": "!" * (15 << 20)}}]})
    assert error.param == "messages.0.content.0.file"
    assert "10485760 bytes" in error.message


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (None, {}),
        ("not json", "not json"),
        ({"a": 1}, {"a": 1}),
        ("[1", "[1"),
        ("NaN", "NaN"),
    ],
)
def test_arguments_of_calls_are_objects_where_they_can_be(arguments, read):
    (message,) = walk(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}],
        }
    )
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": read}
    assert message["content"] == ""


@pytest.mark.parametrize(
    "arguments", [r'{"a": "\ud800"}', '{"a": 1e999}', '{"a": ' + "9" * 400 + "}", "[" * 300 + "]" * 300]
)
def test_arguments_beyond_the_body_limits_stay_text(arguments):
    """A lone surrogate or an integer beyond 64 bits could not be packed for the worker, which gave a 500."""
    (message,) = walk(
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}
    )
    assert message["tool_calls"][0]["function"]["arguments"] == arguments


def test_deeply_nested_arguments_stay_text():
    text = "[" * 100_000
    (message,) = walk({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": text}}]})
    assert message["tool_calls"][0]["function"]["arguments"] == text


def test_an_empty_list_of_calls_is_removed_and_a_custom_call_reads_as_a_function():
    assert "tool_calls" not in walk({"role": "assistant", "content": "x", "tool_calls": []})[0]
    (message,) = walk(
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]}
    )
    assert message["tool_calls"] == [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"input": "x"}}}
    ]


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


def test_thinking_parts_are_joined_with_reasoning_unless_they_repeat_it():
    parts = [{"type": "thinking", "thinking": "a"}, {"type": "thinking", "thinking": "b", "closed": True}]
    assert walk({"role": "assistant", "content": parts})[0]["reasoning"] == "a\nb"
    assert walk({"role": "assistant", "content": parts, "reasoning_content": "x"})[0]["reasoning"] == "x\na\nb"
    assert walk({"role": "assistant", "content": parts, "reasoning": "a\nb"})[0]["reasoning_content"] == "a\nb"


def test_reasoning_of_null_is_absent():
    (message,) = walk({"role": "assistant", "content": "x", "reasoning": None, "reasoning_content": "hm"})
    assert message["reasoning"] == message["reasoning_content"] == "hm"


def test_open_reasoning_is_marked_by_an_empty_part():
    (message,) = walk({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "closed": False}]})
    assert message["reasoning"] == "hm"
    assert message["content"] == [{"type": "thinking", "thinking": "", "closed": False}]


def test_calls_of_a_custom_role_are_read_as_those_of_the_assistant():
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
    tools = [{"type": "function", "function": {"name": "f"}}]
    (message,) = walk({"role": "critic", "reasoning": "hm", "tool_calls": [call], "tools": tools})
    assert message["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert message["reasoning_content"] == "hm"
    assert message["tools"] == tools


def test_tool_calls_of_a_user_message_are_kept_unread():
    assert walk({"role": "user", "content": "x", "tool_calls": 5})[0]["tool_calls"] == 5


def test_missing_call_ids_get_nine_letters_and_digits():
    """Mistral's templates refuse other ids."""
    (message,) = walk({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "g"}}]})
    first, second = (call["id"] for call in message["tool_calls"])
    assert first != second
    assert all(len(call_id) == 9 and call_id.isalnum() for call_id in (first, second))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": "x"}, ("user", "x")),
        ({"role": "assistant", "content": ["a", {"type": "text", "text": "b"}]}, ("assistant", "a\nb")),
        ({"role": "assistant", "content": None}, ("assistant", "")),
        ({"role": "function", "name": "f", "content": "x"}, ("function", "x")),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "closed": False}, "y"]},
            ("assistant", "y"),
        ),
    ],
)
def test_the_text_of_the_last_message_is_that_of_its_parts(message, expected):
    sent = [{"role": "user", "content": "first"}, message]
    assert last_message_text(walk(*sent), sent) == expected


def test_a_refusal_is_the_text_of_a_message_without_one():
    assert walk({"role": "assistant", "content": None, "refusal": "no"})[0] == {"role": "assistant", "content": "no"}


def test_parts_are_counted_over_all_messages():
    error = refused({"role": "user", "content": ["a", "b"]}, {"role": "user", "content": ["c"]}, max_parts=2)
    assert error.param == "messages.1.content"


def test_checking_stops_at_the_tenth_problem():
    error = refused(*[5] * 100_000)
    assert error.message.count(";") == 9
    assert len(error.message) < 2_000


def test_messages_of_the_caller_are_not_modified():
    given = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}],
    }
    before = repr(given)
    walk(given)
    assert repr(given) == before


DATA_URL = "data:image/png;base64,aGk="


def seen(*parts):
    """Return what a model that sees gets of the parts of a message."""
    (message,) = messages_walk(
        [{"role": "user", "content": list(parts)}], model="m", max_parts=9, media=MediaRules(is_taken=True)
    )
    return message["content"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": DATA_URL}},
        {"type": "image_url", "image_url": {"url": DATA_URL.upper().replace("AGK=", "aGk="), "detail": "auto"}},
        {"type": "image_url", "image_url": DATA_URL},
        {"image_url": {"url": DATA_URL, "detail": None}},
        {"image_url": DATA_URL},
    ],
    ids=str,
)
def test_an_image_reaches_the_worker_undecoded_with_its_place(part):
    image = {"type": "image", "data": "aGk=", "detail": "auto", "param": "messages.0.content.1.image_url"}
    assert seen("what is it?", part) == [{"type": "text", "text": "what is it?"}, image]


@pytest.mark.parametrize(
    ("image", "param", "words"),
    [
        (None, "image_url", "must be an object with url"),
        (5, "image_url", "must be an object with url"),
        ({}, "image_url", "must be an object with url"),
        ({"url": ""}, "image_url", "must be an object with url"),
        ({"url": "aGk="}, "image_url.url", "data:image/png;base64,DATA"),
        ({"url": "file:///etc/passwd"}, "image_url.url", "data:image/png;base64,DATA"),
        ({"url": "data:image/png,aGk="}, "image_url.url", "data:image/png;base64,DATA"),
        ({"url": DATA_URL, "detail": "best"}, "image_url.detail", "one of auto, low, high"),
        ({"url": DATA_URL + "a" * (70 << 20)}, "image_url", "at most 52428800 bytes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_image_is_refused_at_its_place(image, param, words):
    with pytest.raises(ApiError) as caught:
        seen({"type": "image_url", "image_url": image})
    assert caught.value.param == f"messages.0.content.0.{param}"
    assert words in caught.value.message
    assert len(caught.value.message) < 400


def test_a_request_has_at_most_eight_images():
    with pytest.raises(ApiError) as caught:
        seen(*[{"image_url": DATA_URL}] * 9)
    assert caught.value.param == "messages.0.content.8.image_url"


def test_other_media_are_refused_by_a_model_that_sees():
    with pytest.raises(ApiError) as caught:
        seen({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}})
    assert "m takes text and images; send text" in caught.value.message
    assert caught.value.param == "messages.0.content.0.input_audio"


def test_a_refusal_names_the_models_that_see():
    message = {"role": "user", "content": [{"image_url": DATA_URL}]}
    with pytest.raises(ApiError) as caught:
        messages_walk([message], model="m", max_parts=9, media=MediaRules(seeing=["smolvlm", "llava"]))
    assert "use a model that takes images: smolvlm, llava" in caught.value.message
