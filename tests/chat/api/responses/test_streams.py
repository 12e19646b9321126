"""Streamed responses: events, their order, and equality with the plain response."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from chat.api.dialect import AnswerHead
from chat.api.responses.answer import ResponseAnswer
from chat.api.responses.stream import ResponseStream
from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    ErrorCode,
    Event,
    Failed,
    FinishReason,
    Outcome,
    Payload,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from tests.chat.api.conftest import ADMITTED, completed, delta, finished
from tests.chat.api.responses.conftest import answer, checked, events, names, respond
from tests.examples import examples

WEATHER = [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}]
CALLS = [
    ADMITTED,
    Delta(0, (1,), "", reasoning="I "),
    Delta(0, (2,), "Wait", reasoning="see."),
    Delta(0, (3,), "", tool_calls=(ToolCallDelta(0, "call_a", "weather", '{"x":'),)),
    Delta(0, (4,), "", tool_calls=(ToolCallDelta(0, "", "", "1}"), ToolCallDelta(1, "call_b", "weather", "{}"))),
    finished(reason=FinishReason.TOOL_CALLS),
    completed(),
]


async def test_a_text_streams_in_the_official_order(api, scripted):
    response = await respond(api, stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    read = events(response.text)
    assert names(read) == [
        *(
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
        ),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert read[0]["response"]["status"] == "in_progress"
    assert read[2]["item"]["content"] == []
    assert read[3]["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert [event["delta"] for event in read if event["type"].endswith("delta")] == ["Hel", "lo"]
    assert read[6]["text"] == read[7]["part"]["text"] == read[8]["item"]["content"][0]["text"] == "Hello"
    assert read[8]["item"]["status"] == "completed"
    last = checked(read[-1]["response"])
    assert last["output"] == [read[8]["item"]]
    assert last["usage"]["total_tokens"] == 5
    assert scripted.readers[0].num_left == 1


async def test_reasoning_text_and_calls_are_separate_items(api, scripted):
    scripted.script = list(CALLS)
    read = events((await respond(api, stream=True, tools=WEATHER)).text)
    assert names(read) == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *(
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
        ),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    items = read[-1]["response"]["output"]
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call", "function_call"]
    assert items[0]["content"] == [{"type": "reasoning_text", "text": "I see."}]
    assert (items[0]["summary"], items[2]["arguments"], items[2]["call_id"]) == ([], '{"x":1}', "call_a")
    added = [event["item"] for event in read if event["type"] == "response.output_item.added"]
    assert [(item["status"], item.get("arguments")) for item in added] == [("in_progress", None)] * 2 + [
        ("in_progress", "")
    ] * 2
    assert [item["id"][:3] for item in items] == ["rs_", "msg", "fc_", "fc_"]


async def test_a_cut_answer_is_incomplete(api, scripted):
    scripted.script = [ADMITTED, delta("Hel"), finished(reason=FinishReason.LENGTH), completed()]
    read = events((await respond(api, stream=True, max_output_tokens=1)).text)
    assert read[-1]["type"] == "response.incomplete"
    assert read[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert read[-1]["response"]["output"][0]["status"] == "incomplete"


async def test_a_failure_in_the_stream_ends_with_a_failed_response_and_its_output(api, scripted):
    scripted.script = [
        ADMITTED,
        delta("Hel"),
        Failed(ErrorCode.WORKER_LOST, "gone", Usage(), None, Outcome.WORKER_LOST),
    ]
    read = events((await respond(api, stream=True)).text)
    assert names(read)[-2:] == ["error", "failed"]
    assert (read[-2]["code"], read[-2]["message"]) == ("worker_lost", "gone")
    assert read[-1]["response"]["error"] == {"code": "server_error", "message": "gone"}
    assert read[-1]["response"]["output"][0]["content"][0]["text"] == "Hel"


async def test_log_probabilities_come_with_their_text(api, scripted):
    entry = TokenLogprob(5, -0.5, "Hel", b"Hel", ())
    scripted.script = [
        ADMITTED,
        delta("", logprobs=(entry,)),
        delta("Hello", logprobs=(entry,)),
        finished(),
        completed(),
    ]
    read = events((await respond(api, stream=True, include=["message.output_text.logprobs"], top_logprobs=2)).text)
    [more] = [event for event in read if event["type"] == "response.output_text.delta"]
    assert [logprob["token"] for logprob in more["logprobs"]] == ["Hel", "Hel"]
    assert read[-1]["response"]["output"][0]["content"][0]["logprobs"] == more["logprobs"]
    assert scripted.requests[0].logprobs.top == 2


async def test_hidden_reasoning_is_no_item(api, scripted):
    scripted.script = list(CALLS)
    read = events((await respond(api, stream=True, tools=WEATHER, include_reasoning=False)).text)
    assert [item["type"] for item in read[-1]["response"]["output"]] == ["message", "function_call", "function_call"]


async def test_an_empty_answer_is_an_empty_message(api, scripted):
    scripted.script = [ADMITTED, finished(), completed()]
    assert [item["content"][0]["text"] for item in (await answer(api))["output"]] == [""]


HEAD = AnswerHead(
    request_id="r",
    created=1,
    model="m",
    fingerprint="f",
    role="assistant",
    num_choices=1,
    has_logprobs=False,
    include_usage=False,
    continuous_usage=False,
    service_tier=None,
    num_prompt_tokens=3,
    echo_fields={
        "id": "resp_" + "0" * 32,
        "background": False,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
    },
)
PIECES = st.lists(
    st.one_of(
        st.builds(lambda text: Delta(0, (1,), text), st.sampled_from(["a", "b ", ""])),
        st.builds(lambda text: Delta(0, (1,), "", reasoning=text), st.sampled_from(["r", "s"])),
        st.builds(lambda text: Delta(0, (1,), text, reasoning="t"), st.sampled_from(["a", ""])),
    ),
    max_size=8,
)


def events_of(writer, payloads: list[Payload]):
    return [writer.feed(Event(position, 1, payload)) for position, payload in enumerate(payloads)]


@examples(15)
@given(pieces=PIECES, num_calls=st.integers(0, 3), reason=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]))
def test_any_stream_equals_the_plain_response_and_resumes_at_any_event(pieces, num_calls, reason):
    calls = [
        Delta(0, (1,), "", tool_calls=(ToolCallDelta(index, f"c{index}", "f", "{"),)) for index in range(num_calls)
    ]
    end = [
        ChoiceFinished(0, reason, None, "!"),
        Completed(Outcome.FINISHED, Usage(3, 0, 2), Timings(0.0, 0.1, 0.2, 0.3)),
    ]
    payloads: list[Payload] = [Admitted(3, 100, 1), *pieces, *calls, *end]
    stream = b"".join(events_of(ResponseStream(HEAD), payloads))
    plain = ResponseAnswer(HEAD)
    events_of(plain, payloads)
    read = events(stream.decode())
    assert read[-1]["response"] == json.loads(plain.body())
    grown: dict[int, str] = {}
    for event in read:
        if event["type"].endswith(".delta"):
            grown[event["output_index"]] = grown.get(event["output_index"], "") + event["delta"]
    for index, item in enumerate(read[-1]["response"]["output"]):
        text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert grown.get(index, "") == text
    frames = stream.split(b"\n\n")[:-1]
    for after in range(-1, len(frames)):
        assert b"".join(events_of(ResponseStream(HEAD, after=after), payloads)) == b"".join(
            frame + b"\n\n" for frame in frames[after + 1 :]
        )
