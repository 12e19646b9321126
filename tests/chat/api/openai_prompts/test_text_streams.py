"""Streamed text completions: chunks interleaved by index, with the usage of all prompts at the end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.api.text_format.answer import TextAnswer
from chat.api.text_format.head import TextHead
from chat.api.text_format.stream import TextStream
from engine.api import Admitted, Completed, ErrorCode, Event, Failed, FinishReason, RawPrompt, RequestError, Usage
from tests.chat.api.conftest import ADMITTED, completed, delta, finished, frames
from tests.chat.api.openai_prompts.test_text_completions import ADMITTED_WITH_PROMPT, ROUTE, SCORED, entry


async def stream(api, **fields):
    response = await api.post(ROUTE, json={"prompt": "Once", "stream": True, **fields})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    return frames(response.text)


async def test_chunks_have_the_shape_of_the_answer_and_end_with_done(api, scripted):
    scripted.script[3] = finished(text="!", stop_reason="x")
    *chunks, done = await stream(api)
    assert done == "[DONE]"
    heads = [{name: value for name, value in chunk.items() if name != "choices"} for chunk in chunks]
    assert all(head == heads[0] for head in heads)
    assert heads[0]["object"] == "text_completion"
    assert set(heads[0]) == {"id", "object", "created", "model", "system_fingerprint"}
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "text": "Hel", "logprobs": None, "finish_reason": None}],
        [{"index": 0, "text": "lo", "logprobs": None, "finish_reason": None}],
        [{"index": 0, "text": "!", "logprobs": None, "finish_reason": "stop", "stop_reason": "x"}],
    ]


async def test_usage_of_all_prompts_is_one_last_chunk_without_choices(api):
    *chunks, usage, _ = await stream(api, prompt=["a", "b"], stream_options={"include_usage": True})
    assert usage["choices"] == []
    assert (usage["usage"]["prompt_tokens"], usage["usage"]["completion_tokens"]) == (6, 4)
    assert {chunk["usage"] for chunk in chunks} == {None}


async def test_continuous_usage_counts_the_choice_and_its_prompt(api):
    *chunks, _, _ = await stream(api, prompt=["a", "b"], stream_options={"continuous_usage_stats": True})
    mine = [chunk["usage"] for chunk in chunks if chunk["choices"][0]["index"] == 1]
    assert [(usage["prompt_tokens"], usage["completion_tokens"]) for usage in mine] == [(3, 1), (3, 2), (3, 2)]


async def test_chunks_of_several_prompts_carry_the_index_of_their_choice(api, scripted):
    scripted.script = [ADMITTED, delta("a"), delta("b", 1), finished(1), finished(0, FinishReason.LENGTH), completed()]
    *chunks, _ = await stream(api, prompt=["x", "y"], n=2)
    texts = dict.fromkeys(range(4), "")
    reasons = {}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        assert choice["index"] not in reasons
        texts[choice["index"]] += choice["text"]
        if choice["finish_reason"]:
            reasons[choice["index"]] = choice["finish_reason"]
    assert texts == {0: "a", 1: "b", 2: "a", 3: "b"}
    assert reasons == {0: "length", 1: "stop", 2: "length", 3: "stop"}


async def test_an_echo_comes_first_with_the_prompt_s_log_probabilities(api, scripted):
    said = [delta("!", logprobs=(entry("!", -0.125),)), delta("?", logprobs=(entry("?", -1.0),))]
    scripted.script = [ADMITTED_WITH_PROMPT, SCORED, *said, finished(), completed()]
    *chunks, _ = await stream(api, echo=True, logprobs=0)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["text"] for choice in choices] == ["Once", "!", "?", ""]
    assert choices[0]["logprobs"]["tokens"] == ["<s>", "On", "ce"]
    assert choices[1]["logprobs"] == {
        "tokens": ["!"],
        "token_logprobs": [-0.125],
        "top_logprobs": [{"!": -0.125}],
        "text_offset": [4],
    }
    assert choices[2]["logprobs"]["text_offset"] == [5]
    assert choices[3]["logprobs"] is None


async def test_log_probabilities_of_an_added_bos_come_with_the_first_chunk(api, scripted):
    from engine.api import PromptScored

    scripted.script = [
        Admitted(1, 100, 1, (1,), None, ("<s>",)),
        PromptScored(((),)),
        delta("!", logprobs=(entry("!", -0.5),)),
        finished(),
        completed(),
    ]
    *chunks, _ = await stream(api, prompt="", echo=True, logprobs=0)
    assert chunks[0]["choices"][0]["logprobs"] == {
        "tokens": ["<s>", "!"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"!": -0.5}],
        "text_offset": [0, 0],
    }


async def test_echo_with_max_tokens_0_streams_the_prompt_and_an_end(api, scripted):
    scripted.script = [ADMITTED_WITH_PROMPT, SCORED, finished(reason=FinishReason.LENGTH), completed()]
    *chunks, _ = await stream(api, echo=True, logprobs=0, max_tokens=0)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Once", ""]
    assert chunks[1]["choices"][0]["finish_reason"] == "length"


async def test_prompt_ids_are_on_the_first_chunk_and_token_ids_on_all(api, scripted):
    scripted.script[0] = Admitted(2, 100, 1, prompt_ids=(8, 9))
    *chunks, _ = await stream(api, return_token_ids=True)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["prompt_token_ids"] == [8, 9]
    assert [choice.get("token_ids") for choice in choices] == [None, [5], [5], None]


async def test_stream_interval_groups_tokens(api, scripted):
    scripted.script = [ADMITTED, *(delta(letter) for letter in "abcde"), finished(), completed()]
    *chunks, _ = await stream(api, stream_interval=2)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["a", "bc", "de", ""]


async def test_a_failure_after_the_first_token_is_sent_in_the_stream(api, scripted):
    scripted.script = [ADMITTED, delta("x"), Failed(ErrorCode.ENGINE_ERROR, "broken")]
    first, error, done = await stream(api)
    assert first["choices"][0]["text"] == "x"
    assert (error["error"]["code"], done) == ("engine_error", "[DONE]")
    assert scripted.readers[0].num_left >= 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_before_the_first_token_is_a_plain_http_error(api, scripted, stream):
    scripted.script = [
        RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "This model's maximum context length is 9 tokens.", "prompt.1")
    ]
    response = await api.post(ROUTE, json={"prompt": ["a", "b"], "stream": stream})
    body = response.json()
    assert (response.status_code, body["error"]["code"], body["error"]["param"]) == (
        400,
        "context_length_exceeded",
        "prompt.1",
    )


async def test_a_request_without_a_possible_first_token_is_a_plain_400(api, scripted):
    scripted.script = [
        ADMITTED,
        Failed(ErrorCode.INVALID_VALUE, "allowed_token_ids leaves no token", param="allowed_token_ids"),
    ]
    response = await api.post(ROUTE, json={"prompt": "a", "stream": True, "allowed_token_ids": [7]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "allowed_token_ids")


# Any split of the same events gives the same answer, streamed or not.

HEAD = TextHead(
    request_id="r",
    created=1,
    model="m",
    fingerprint="fp",
    prompts=(RawPrompt("p0"), RawPrompt("p1")),
    num_choices=2,
    echo=True,
    num_top=None,
    num_prompt_top=None,
    names_tokens_by_id=False,
    returns_token_ids=True,
    include_usage=True,
    continuous_usage=False,
    stream_interval=2,
    service_tier=None,
)
DELTAS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.text(max_size=3)), max_size=12)


@given(deltas=DELTAS)
def test_a_stream_joins_to_the_plain_answer(deltas):
    events = [(index, Admitted(2, 9, 1, (7, index))) for index in (0, 1)]
    events += [(index, Event(0, 1, delta(text, choice, (ord("a"),)))) for index, choice, text in deltas]
    events += [(index, Event(0, 1, finished(choice, text="."))) for index in (1, 0) for choice in (1, 0)]
    events += [(index, Event(0, 1, completed())) for index in (0, 1)]
    answer, streamed = TextAnswer(HEAD), TextStream(HEAD)
    raw = b""
    for index, item in events:
        answer.feed(index, item)
        raw += streamed.feed(index, item)
    *chunks, usage, done = frames((raw + streamed.end()).decode())
    plain = json.loads(answer.body())
    joined = [
        {"index": index, "text": "", "token_ids": [], "prompt_token_ids": None, "finish_reason": None}
        for index in range(4)
    ]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        mine = joined[choice["index"]]
        mine["text"] += choice["text"]
        mine["token_ids"] += choice.get("token_ids", [])
        mine["prompt_token_ids"] = mine["prompt_token_ids"] or choice.get("prompt_token_ids")
        mine["finish_reason"] = choice["finish_reason"]
    assert joined == [{name: choice[name] for name in joined[0]} for choice in plain["choices"]]
    assert usage["usage"] == plain["usage"]
    assert done == "[DONE]"


def test_usage_is_summed_over_all_runs():
    answer = TextAnswer(HEAD)
    for index in (0, 1):
        answer.feed(index, Event(0, 1, Completed(completed().outcome, Usage(3, 1, 2, 1, 4, 5), completed().timings)))
    assert json.loads(answer.body())["usage"] == {
        "prompt_tokens": 6,
        "completion_tokens": 4,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {
            "reasoning_tokens": 2,
            "accepted_prediction_tokens": 8,
            "rejected_prediction_tokens": 10,
        },
    }
