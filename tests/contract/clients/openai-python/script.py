"""OpenAI's Python client: everything that Lightcone serves of it, plain and asynchronous."""

import base64
import io
import json
import time
from typing import Literal

import openai
import pydantic
from reporting import FORCED, HELLO, KEY, MODEL, URL, feature, raised, run, same

CLIENT = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0, timeout=60)
GREEDY = {"model": MODEL, "temperature": 0, "max_tokens": 8}
CHAT = {**GREEDY, "messages": HELLO}
ANSWER = {"model": MODEL, "input": "Say hello.", "temperature": 0, "max_output_tokens": 16}


class City(pydantic.BaseModel):
    """A city with few inhabitants, so that a small model ends in time."""

    name: Literal["Rome", "Oslo"]
    inhabitants: int = pydantic.Field(ge=0, le=9)


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: Literal["Rome", "Oslo"]


TOOL = openai.pydantic_function_tool(Weather)
RESPONSE_TOOL = {"type": "function", "name": "Weather", "strict": True, "parameters": TOOL["function"]["parameters"]}


def asynchronous() -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0, timeout=60)


def wait_for(look, is_done):
    """Polls as users of this client do: it has no other way to learn of an end."""
    deadline = time.monotonic() + 60
    while not is_done(seen := look()):
        assert time.monotonic() < deadline, f"still {seen.status} after a minute"
        time.sleep(0.2)
    return seen


@feature("chat: text, usage and finish reason")
def _():
    answer = CLIENT.chat.completions.create(**CHAT)
    same(answer.model, MODEL)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    same(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@feature("chat: several choices, seed, stop, log-probabilities")
def _():
    asked = {**CHAT, "n": 2, "seed": 7, "temperature": 1, "logprobs": True, "top_logprobs": 2, "stop": ["\n\n"]}
    first, second = (CLIENT.chat.completions.create(**asked) for _ in range(2))
    same([choice.index for choice in first.choices], [0, 1])
    assert first.choices[0].message.content != first.choices[1].message.content
    same([choice.message.content for choice in first.choices], [choice.message.content for choice in second.choices])
    same(len(first.choices[0].logprobs.content[0].top_logprobs), 2)


@feature("chat: further fields of the server by extra_body")
def _():
    answer = CLIENT.chat.completions.create(**CHAT, extra_body={"min_tokens": 8, "ignore_eos": True, "top_k": 5})
    same((answer.usage.completion_tokens, answer.choices[0].finish_reason), (8, "length"))


@feature("chat: headers of the raw response")
def _():
    raw = CLIENT.chat.completions.with_raw_response.create(**CHAT, extra_headers={"X-Request-Id": "my-id"})
    same(raw.headers["x-request-id"], "my-id")
    same(raw.parse().id, "chatcmpl-my-id")


@feature("chat: stored answers are listed, changed and deleted")
def _():
    kept = CLIENT.chat.completions.create(**CHAT, store=True, metadata={"order": "17"})
    chats = CLIENT.chat.completions
    same(chats.retrieve(kept.id).choices[0].message.content, kept.choices[0].message.content)
    assert kept.id in [entry.id for entry in chats.list(metadata={"order": "17"})]
    same([entry.content for entry in chats.messages.list(kept.id)], [HELLO[0]["content"]])
    same(chats.update(kept.id, metadata={"order": "18"}).metadata, {"order": "18"})
    same(chats.delete(kept.id).deleted, True)
    raised(openai.NotFoundError, chats.retrieve, completion_id=kept.id)


@feature("stream: chunks and usage")
def _():
    *chunks, last = CLIENT.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True})
    same((last.choices, last.usage.total_tokens > 0), ([], True))
    same(chunks[0].choices[0].delta.role, "assistant")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    same([chunk.choices[0].finish_reason is not None for chunk in chunks], [False] * (len(chunks) - 1) + [True])


@feature("stream: helper with events")
def _():
    with CLIENT.chat.completions.stream(
        **CHAT, stop=[" ", "."]
    ) as stream:  # its end at a token limit is an error of this helper
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
    assert final.choices[0].message.content


@feature("async: answer, stream, parse")
async def _():
    async with asynchronous() as client:
        assert (await client.chat.completions.create(**CHAT)).choices[0].message.content
        stream = await client.chat.completions.create(**CHAT, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        parsed = await client.chat.completions.parse(**{**CHAT, "max_tokens": 40}, response_format=City)
        assert isinstance(parsed.choices[0].message.parsed, City)


@feature("tools: call, answer, go on", note=FORCED)
def _():
    asked = {**CHAT, "max_tokens": 40, "tools": [TOOL]}
    (choice,) = CLIENT.chat.completions.parse(**asked, tool_choice="required", parallel_tool_calls=False).choices
    (call,) = choice.message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)
    same(choice.finish_reason, "tool_calls")
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    history = [*HELLO, choice.message.model_dump(exclude_none=True), result]
    answer = CLIENT.chat.completions.create(**{**asked, "messages": history, "max_tokens": 8}, tool_choice="none")
    assert answer.choices[0].message.content


@feature("tools: a call grows in a stream", note=FORCED)
def _():
    named = {"type": "function", "function": {"name": "Weather"}}
    with CLIENT.chat.completions.stream(**{**CHAT, "max_tokens": 40}, tools=[TOOL], tool_choice=named) as stream:
        pieces = [event.arguments_delta for event in stream if event.type == "tool_calls.function.arguments.delta"]
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    same("".join(pieces), call.function.arguments)
    assert isinstance(call.function.parsed_arguments, Weather)


@feature("structured: parse() gives a pydantic object")
def _():
    (choice,) = CLIENT.chat.completions.parse(**{**CHAT, "max_tokens": 40}, response_format=City).choices
    assert isinstance(choice.message.parsed, City)


@feature("structured: parsed while it streams")
def _():
    with CLIENT.chat.completions.stream(**{**CHAT, "max_tokens": 40}, response_format=City) as stream:
        assert any(event.type == "content.delta" and event.parsed for event in stream)
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, City)


@feature("completions: text, list of prompts, echo, log-probabilities")
def _():
    plain = CLIENT.completions.create(**GREEDY, prompt="The sky is")
    assert plain.choices[0].text
    several = CLIENT.completions.create(**GREEDY, prompt=["One, two,", "Red, green,"])
    same([choice.index for choice in several.choices], [0, 1])
    (echoed,) = CLIENT.completions.create(**GREEDY, prompt="The sky is", echo=True, logprobs=1).choices
    assert echoed.text.startswith("The sky is"), echoed.text
    same(echoed.logprobs.token_logprobs[0], None)
    same(len(echoed.logprobs.tokens), len(echoed.logprobs.text_offset))


@feature("completions: stream")
def _():
    chunks = list(CLIENT.completions.create(**GREEDY, prompt="The sky is", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason


@feature("embeddings: floats, base64, dimensions")
def _():
    texts = ["a cat", "a dog"]
    packed = CLIENT.embeddings.create(model=MODEL, input=texts)  # asks for base64 and unpacks it
    plain = CLIENT.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    same([entry.index for entry in plain.data], [0, 1])
    for ours, theirs in zip(packed.data, plain.data, strict=True):
        assert max(abs(one - two) for one, two in zip(ours.embedding, theirs.embedding, strict=True)) < 1e-3
    assert abs(sum(value * value for value in plain.data[0].embedding) - 1) < 1e-3
    same(len(CLIENT.embeddings.create(model=MODEL, input="a cat", dimensions=16).data[0].embedding), 16)
    assert plain.usage.prompt_tokens > 0


@feature("responses: text and usage")
def _():
    response = CLIENT.responses.create(**ANSWER, instructions="Be brief.")
    assert response.output_text
    assert response.status in ("completed", "incomplete")
    same(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens)


@feature("responses: stream with events in order")
def _():
    events = list(CLIENT.responses.create(**ANSWER, stream=True))
    same([event.sequence_number for event in events], list(range(len(events))))
    same([event.type for event in events[:2]], ["response.created", "response.in_progress"])
    assert events[-1].type in ("response.completed", "response.incomplete"), events[-1].type
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    same(text, events[-1].response.output_text)
    with CLIENT.responses.stream(
        **{**ANSWER, "max_output_tokens": 40}, text_format=City
    ) as stream:  # asks for an end, not for a limit
        list(stream)
        assert isinstance(stream.get_final_response().output_parsed, City)


@feature("responses: parse() gives a pydantic object")
def _():
    response = CLIENT.responses.parse(**{**ANSWER, "max_output_tokens": 40}, text_format=City)
    assert isinstance(response.output_parsed, City)


@feature("responses: tool call, answer, go on", note=FORCED)
def _():
    asked = {**ANSWER, "max_output_tokens": 40, "tools": [RESPONSE_TOOL]}
    first = CLIENT.responses.create(**asked, tool_choice="required", parallel_tool_calls=False)
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert json.loads(call.arguments)["city"] in ("Rome", "Oslo")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = CLIENT.responses.create(**{**asked, "input": [result]}, previous_response_id=first.id, tool_choice="none")
    assert second.output_text


@feature("responses: continue, retrieve, list input, delete")
def _():
    first = CLIENT.responses.create(**ANSWER)
    second = CLIENT.responses.create(**{**ANSWER, "input": "And now in French."}, previous_response_id=first.id)
    same(second.previous_response_id, first.id)
    assert second.usage.input_tokens > first.usage.input_tokens
    same(CLIENT.responses.retrieve(first.id).output_text, first.output_text)
    same([item.role for item in CLIENT.responses.input_items.list(first.id)], ["user"])
    CLIENT.responses.delete(first.id)
    raised(openai.NotFoundError, CLIENT.responses.retrieve, response_id=first.id)


@feature("responses: in the background, and cancelled")
def _():
    begun = CLIENT.responses.create(**ANSWER, background=True)
    ended = wait_for(
        lambda: CLIENT.responses.retrieve(begun.id), lambda seen: seen.status not in ("queued", "in_progress")
    )
    assert ended.status in ("completed", "incomplete"), ended.status
    assert ended.output_text
    long = CLIENT.responses.create(
        **{**ANSWER, "max_output_tokens": 1500}, background=True, extra_body={"ignore_eos": True}
    )
    same(CLIENT.responses.cancel(long.id).status, "cancelled")


@feature("responses: a stream is read again from a position")
def _():
    events = list(CLIENT.responses.create(**ANSWER, background=True, stream=True))
    middle = len(events) // 2
    again = list(CLIENT.responses.retrieve(events[0].response.id, stream=True, starting_after=middle - 1))
    same(
        [(event.sequence_number, event.type) for event in again],
        [(event.sequence_number, event.type) for event in events[middle:]],
    )


@feature("responses: count input tokens")
def _():
    counted = CLIENT.responses.input_tokens.count(model=MODEL, input="Say hello.")
    same(counted.input_tokens, CLIENT.responses.create(**ANSWER).usage.input_tokens)


@feature("files: upload, list, read, delete")
def _():
    made = CLIENT.files.create(file=("notes.jsonl", io.BytesIO(b'{"a": 1}\n')), purpose="user_data")
    same((made.filename, made.bytes, made.purpose), ("notes.jsonl", 9, "user_data"))
    assert made.id in [entry.id for entry in CLIENT.files.list(purpose="user_data")]
    same(CLIENT.files.retrieve(made.id).id, made.id)
    same(CLIENT.files.content(made.id).read(), b'{"a": 1}\n')
    same(CLIENT.files.delete(made.id).deleted, True)


@feature("files: attached to a chat and a response by id")
def _():
    made = CLIENT.files.create(file=("notes.csv", b"what,how many\nmilk,2\n"), purpose="user_data")
    ask = "What shall I bring?"
    data = base64.b64encode(b"what,how many\nmilk,2\n").decode()
    answers = []
    for file in ({"file_id": made.id}, {"filename": "notes.csv", "file_data": data}):
        turn = {"role": "user", "content": [{"type": "file", "file": file}, {"type": "text", "text": ask}]}
        answers.append(CLIENT.chat.completions.create(**{**GREEDY, "messages": [turn]}))
    same(*(answer.usage.prompt_tokens for answer in answers))
    parts = [{"type": "input_file", "file_id": made.id}, {"type": "input_text", "text": ask}]
    response = CLIENT.responses.create(**{**ANSWER, "input": [{"role": "user", "content": parts}]})
    same(response.usage.input_tokens, answers[0].usage.prompt_tokens)
    CLIENT.files.delete(made.id)


def begin_batch(num_lines, **body):
    line = {"method": "POST", "url": "/v1/chat/completions", "body": {**CHAT, **body}}
    text = "\n".join(json.dumps({"custom_id": f"line-{number}", **line}) for number in range(num_lines))
    lines = CLIENT.files.create(file=("lines.jsonl", text.encode()), purpose="batch")
    return CLIENT.batches.create(
        input_file_id=lines.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"of": "a test"}
    )


@feature("batches: run, watch, read the output")
def _():
    begun = begin_batch(3)
    ended = wait_for(
        lambda: CLIENT.batches.retrieve(begun.id), lambda seen: seen.status in ("completed", "failed", "expired")
    )
    same((ended.status, ended.request_counts.completed, ended.request_counts.failed), ("completed", 3, 0))
    assert begun.id in [entry.id for entry in CLIENT.batches.list()]
    answers = [json.loads(line) for line in CLIENT.files.content(ended.output_file_id).text.splitlines()]
    same(sorted(answer["custom_id"] for answer in answers), ["line-0", "line-1", "line-2"])
    assert all(answer["response"]["body"]["choices"][0]["message"]["content"] for answer in answers)


@feature("batches: cancel")
def _():
    begun = begin_batch(20, max_tokens=400, ignore_eos=True)
    assert CLIENT.batches.cancel(begun.id).status in ("cancelling", "cancelled")
    wait_for(lambda: CLIENT.batches.retrieve(begun.id), lambda seen: seen.status == "cancelled")


@feature("models: list and one")
def _():
    assert MODEL in [model.id for model in CLIENT.models.list()]
    same(CLIENT.models.retrieve(MODEL).id, MODEL)


@feature("errors: class, code and field")
def _():
    for fields, kind, code, param in (
        ({"temperature": 9}, openai.BadRequestError, "invalid_value", "temperature"),
        ({"model": "gpt-9"}, openai.NotFoundError, "model_not_found", "model"),
        ({"stream": True, "messages": []}, openai.BadRequestError, "invalid_value", "messages"),
    ):
        error = raised(kind, CLIENT.chat.completions.create, **{**CHAT, **fields})
        same((error.code, error.param), (code, param))
    stranger = openai.OpenAI(api_key="lc_wrong", base_url=f"{URL}/v1", max_retries=0)
    same(raised(openai.AuthenticationError, stranger.models.list).code, "invalid_api_key")


run()
