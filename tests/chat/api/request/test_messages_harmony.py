"""Harmony messages become ordinary ones without loss; others are refused at their exact place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.api.request.messages import messages_walk
from chat.errors import ApiError


def walk(*messages):
    return list(messages_walk(list(messages), model="tiny", max_parts=10_000))


def said(role, *content, **keys):
    name = keys.pop("name", None)
    return {"author": {"role": role, **({"name": name} if name else {})}, "content": list(content), **keys}


def text(words):
    return {"type": "text", "text": words}


def test_every_author_becomes_a_role_and_texts_are_joined():
    for role in ("user", "assistant", "system", "developer"):
        (message,) = walk(said(role, "a", text("b"), name="Ann", mood=5))
        assert message == {"role": role, "name": "Ann", "mood": 5, "content": "a\nb"}


def test_content_may_be_absent():
    assert walk({"author": {"role": "user"}}, {"author": {"role": "assistant"}, "content": None}) == [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": ""},
    ]


def test_analysis_is_the_reasoning_of_the_next_message_of_the_assistant():
    messages = walk(
        said("user", "?"),
        said("assistant", "hm", channel="analysis"),
        said("assistant", "so", channel="analysis"),
        said("assistant", "yes", channel="final"),
    )
    assert messages[1:] == [
        {"role": "assistant", "content": "yes", "reasoning": "hm\nso", "reasoning_content": "hm\nso"}
    ]


def test_analysis_joins_ordinary_messages_and_is_never_lost():
    messages = walk(
        said("assistant", "a", channel="analysis"),
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "b", "reasoning": "own"},
        said("assistant", "c", channel="analysis"),
    )
    assert [message.get("reasoning") for message in messages] == [None, "a\nown", "c"]
    assert messages[-1]["content"] == ""


def test_a_call_finds_its_result():
    messages = walk(
        said("assistant", "need data", channel="analysis"),
        said("assistant", "Looking.", channel="commentary"),
        said("assistant", '{"a": 1}', channel="commentary", recipient="functions.f", content_type="json"),
        said("assistant", "", channel="commentary", recipient="functions.g"),
        said("tool", "one", name="functions.f", recipient="assistant", channel="commentary"),
        said("tool", "two", name="functions.g"),
        said("assistant", "done", channel="final"),
    )
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "assistant"]
    first, one, two, last = messages
    assert (first["reasoning"], first["content"]) == ("need data", "Looking.")
    assert [call["function"] for call in first["tool_calls"]] == [
        {"name": "f", "arguments": {"a": 1}},
        {"name": "g", "arguments": {}},
    ]
    assert [one["tool_call_id"], two["tool_call_id"]] == [call["id"] for call in first["tool_calls"]]
    assert (one["name"], one["content"], last["content"]) == ("f", "one", "done")


def test_a_result_answers_the_latest_call_that_has_none():
    messages = walk(
        said("assistant", "1", channel="commentary", recipient="functions.f"),
        said("tool", "first", name="functions.f"),
        said("assistant", "2", channel="commentary", recipient="functions.f"),
        said("tool", "second", name="functions.f"),
        said("tool", "third", name="functions.f"),
    )
    calls = [message["tool_calls"][0]["id"] for message in messages if message["role"] == "assistant"]
    assert [message.get("tool_call_id") for message in messages if message["role"] == "tool"] == [*calls, None]


def test_a_result_may_answer_a_call_of_an_ordinary_message():
    messages = walk(
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
        said("tool", "x", name="functions.f"),
    )
    assert messages[1]["tool_call_id"] == "c"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"author": {"role": "critic"}}, "messages.0.author.role"),
        ({"author": {}}, "messages.0.author.role"),
        ({"author": "user"}, "messages.0.author.role"),
        ({"author": None}, "messages.0.author.role"),
        ({"author": {"role": ["user"]}}, "messages.0.author.role"),
        ({"author": {"role": "user", "name": 5}}, "messages.0.author.name"),
        ({"role": 5, "author": {"role": "user"}, "content": "x"}, "messages.0.content"),
        ({"author": {"role": "user"}, "content": {}}, "messages.0.content"),
        ({"author": {"role": "user"}, "content": [5]}, "messages.0.content.0"),
        (
            {"author": {"role": "user"}, "content": [{"type": "image_url", "image_url": "x"}]},
            "messages.0.content.0.image_url",
        ),
        (
            {"author": {"role": "user"}, "content": [{"type": "file", "file": {"file_data": "eA=="}}]},
            "messages.0.content",
        ),
        (said("assistant", "x", channel="commentary", recipient="python"), "messages.0.recipient"),
        (said("assistant", "x", channel="commentary", recipient="functions."), "messages.0.recipient"),
        (said("assistant", "x", channel="commentary", recipient=["functions.f"]), "messages.0.recipient"),
        (said("assistant", "x", channel="final", recipient="functions.f"), "messages.0.recipient"),
        (said("user", "x", recipient="functions.f"), "messages.0.recipient"),
        (said("assistant", "x", channel="thoughts"), "messages.0.channel"),
        (said("assistant", "x", channel=5), "messages.0.channel"),
        (said("tool", "x"), "messages.0.author.name"),
        (said("tool", "x", name="browser.search"), "messages.0.author.name"),
    ],
    ids=str,
)
def test_a_bad_harmony_message_is_refused_at_its_place(message, param):
    with pytest.raises(ApiError) as caught:
        walk(message)
    assert (caught.value.status, caught.value.param) == (400, param)


CHANNELS = st.sampled_from(["analysis", "final", None])
MESSAGES = st.one_of(
    st.builds(lambda words: said("user", words), st.text(max_size=5)),
    st.builds(
        lambda words, channel: said("assistant", words, channel=channel),
        st.text(max_size=5),
        st.sampled_from(["analysis", "final", None]),
    ),
    st.builds(
        lambda name: said("assistant", '{"n": 1}', channel="commentary", recipient=f"functions.{name}"),
        st.sampled_from("fg"),
    ),
    st.builds(
        lambda words, name: said("tool", words, name=f"functions.{name}"), st.text(max_size=5), st.sampled_from("fg")
    ),
)


@given(st.lists(MESSAGES, max_size=12))
def test_no_text_and_no_call_is_lost(given_messages):
    messages = walk(*given_messages)
    shown = [message["content"] for message in messages if message["content"]]
    assert shown == [
        message["content"][0]
        for message in given_messages
        if message["content"][0] and message.get("channel") not in ("analysis", "commentary")
    ]
    thoughts = [message["reasoning"] for message in messages if "reasoning" in message]
    assert "\n".join(thoughts) == "\n".join(
        message["content"][0] for message in given_messages if message.get("channel") == "analysis"
    )
    calls = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    assert len(calls) == len(set(calls)) == sum(message.get("channel") == "commentary" for message in given_messages)
    answered = [
        message["tool_call_id"] for message in messages if message["role"] == "tool" and "tool_call_id" in message
    ]
    assert len(answered) == len(set(answered))
    assert set(answered) <= set(calls)
