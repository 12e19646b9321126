"""Ollama's Python client."""

import json

import ollama
from reporting import HELLO, KEY, MODEL, URL, feature, raised, run, same

WORDS = "the test model answers in words, and this client cannot force a call"
HEADERS = {"Authorization": f"Bearer {KEY}"}
CLIENT = ollama.Client(host=URL, headers=HEADERS, timeout=60)
OPTIONS = {"num_predict": 8, "temperature": 0}
CHAT = {"model": MODEL, "messages": HELLO, "options": OPTIONS}
PERSON = {
    "type": "object",
    "properties": {"drink": {"enum": ["tea", "coffee"]}},
    "required": ["drink"],
    "additionalProperties": False,
}
TIMES = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: The name of a city.
    """
    return f"sunny in {city}"


@feature("chat: text, counts, times and the reason of the end")
def _():
    answer = CLIENT.chat(**CHAT)
    same((answer.model, answer.message.role, answer.done), (MODEL, "assistant", True))
    assert answer["message"]["content"]
    assert answer.done_reason in ("stop", "length")
    assert answer.prompt_eval_count > 0
    assert 0 < answer.eval_count <= 8
    assert all(answer[name] >= 0 for name in TIMES)
    assert answer.total_duration >= answer.eval_duration > 0


@feature("chat: options, log-probabilities, thinking and keep_alive")
def _():
    options = ollama.Options(num_predict=4, temperature=0.5, seed=1, top_k=5, stop=["zzz"], num_ctx=2048, num_thread=2)
    fields = {**CHAT, "options": options, "logprobs": True, "top_logprobs": 2, "think": False, "keep_alive": "5m"}
    first, second = CLIENT.chat(**fields), CLIENT.chat(**fields)
    same(first.message.content, second.message.content)
    same(len(first.logprobs), first.eval_count)
    same(len(first.logprobs[0].top_logprobs), 2)


@feature("chat: a conversation goes on, and a begun answer")
def _():
    spoken = [*HELLO, ollama.Message(role="assistant", content="Hello!"), {"role": "user", "content": "Again."}]
    assert CLIENT.chat(**{**CHAT, "messages": spoken}).message.content
    assert CLIENT.chat(**{**CHAT, "messages": spoken[:2]}).done


@feature("chat: without messages the model is loaded")
def _():
    same((CLIENT.chat(model=MODEL).done_reason, CLIENT.generate(model=MODEL).done_reason), ("load", "load"))


@feature("stream: pieces, the last with counts")
def _():
    *pieces, last = CLIENT.chat(**CHAT, stream=True)
    whole = CLIENT.chat(**CHAT).message.content
    same("".join(piece.message.content for piece in pieces), whole)
    same([piece.done for piece in pieces], [False] * len(pieces))
    same((last.done, last.message.content, last.eval_count), (True, "", CLIENT.chat(**CHAT).eval_count))


@feature("async: answer, stream and vectors")
async def _():
    client = ollama.AsyncClient(host=URL, headers=HEADERS, timeout=60)
    assert (await client.chat(**CHAT)).message.content
    pieces = [piece async for piece in await client.generate(model=MODEL, prompt="Hi", options=OPTIONS, stream=True)]
    assert "".join(piece.response for piece in pieces)
    same(len((await client.embed(model=MODEL, input="a cat")).embeddings), 1)


@feature("tools: functions are offered, calls and results read", note=WORDS)
def _():
    assert CLIENT.chat(**CHAT, tools=[weather]).done
    call = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    spoken = [
        *HELLO,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_name": "weather", "content": weather("Oslo")},
    ]
    assert CLIENT.chat(**{**CHAT, "messages": spoken}, tools=[weather]).message.content


@feature("structured: JSON Schema")
def _():
    answer = CLIENT.chat(**{**CHAT, "options": {"num_predict": 24}}, format=PERSON)
    assert json.loads(answer.message.content)["drink"] in ("tea", "coffee")


@feature("structured: any JSON object, streamed")
def _():
    fields = {"model": MODEL, "prompt": "A name, as JSON.", "options": {"num_predict": 64, "temperature": 0}}
    pieces = list(CLIENT.generate(**fields, format="json", stream=True))
    text = "".join(piece.response for piece in pieces)
    assert text.startswith("{")
    if pieces[-1].done_reason == "stop":
        assert isinstance(json.loads(text), dict)


@feature("completions: a prompt, with a system prompt, and raw")
def _():
    answer = CLIENT.generate(model=MODEL, prompt="Say hello.", system="Be brief.", options=OPTIONS)
    assert answer.response
    assert answer.context is None
    raw = CLIENT.generate(model=MODEL, prompt="The sky is", raw=True, options=OPTIONS)
    assert raw.prompt_eval_count < answer.prompt_eval_count


@feature("embeddings: one text, several, dimensions, the older route")
def _():
    several = CLIENT.embed(model=MODEL, input=["a cat", "a dog"])
    same(len(several.embeddings), 2)
    assert several.prompt_eval_count > 0
    one = CLIENT.embed(model=MODEL, input="a cat").embeddings[0]
    assert max(abs(a - b) for a, b in zip(one, several.embeddings[0], strict=True)) < 1e-3
    same(len(CLIENT.embed(model=MODEL, input="a cat", dimensions=16).embeddings[0]), 16)
    same(len(CLIENT.embeddings(model=MODEL, prompt="a cat").embedding), len(one))


@feature("models: listed, shown, running")
def _():
    model = next(model for model in CLIENT.list().models if model.model == MODEL)
    assert model.size > 1_000_000
    same((model.details.format, model.details.family), ("gguf", "llama"))
    shown = CLIENT.show(MODEL)
    same(shown.capabilities[0], "completion")
    assert shown.modelinfo["llama.context_length"] > 0
    assert MODEL in [model.model for model in CLIENT.ps().models]


@feature("models: copied, created, deleted")
def _():
    same(CLIENT.copy(MODEL, "further:name").status, "success")
    assert CLIENT.chat(**{**CHAT, "model": "further:name"}).message.content
    steps = list(CLIENT.create(model="calm", from_=MODEL, parameters={"temperature": 0.1}, stream=True))
    same(steps[-1].status, "success")
    assert "temperature" in CLIENT.show("calm").parameters
    for name in ("further:name", "calm"):
        same(CLIENT.delete(name).status, "success")
    assert not {"further:name", "calm"} & {model.model for model in CLIENT.list().models}


@feature("models: pulled, where there is nothing to fetch")
def _():
    same([step.status for step in CLIENT.pull(MODEL, stream=True)], ["success"])
    same(raised(ollama.ResponseError, CLIENT.pull, model="llama3.2").status_code, 400)


@feature("errors: status and sentence")
def _():
    for fields, status, word in (
        ({"model": "llama9"}, 404, "not found"),
        ({"options": {"temperature": 9}}, 400, "options.temperature"),
        ({"messages": [{"role": "user", "content": "x", "images": [b"no picture"]}]}, 400, "messages.0.images"),
    ):
        error = raised(ollama.ResponseError, CLIENT.chat, **{**CHAT, **fields})
        same(error.status_code, status)
        assert word in error.error
    stranger = ollama.Client(host=URL, headers={"Authorization": "Bearer lc_no"})
    same(raised(ollama.ResponseError, stranger.chat, **CHAT).status_code, 401)
    error = raised(ollama.ResponseError, lambda: list(CLIENT.chat(**{**CHAT, "model": "llama9"}, stream=True)))
    same(error.status_code, 404)


run()
