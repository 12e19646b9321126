"""LiteLLM as a client: OpenAI's shape, and the providers that it knows for servers like this one."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a list of prices when imported

import litellm
from reporting import FORCED, HELLO, KEY, MODEL, URL, ImpossibleError, feature, raised, run, same

litellm.telemetry = False
AT = {"api_base": f"{URL}/v1", "api_key": KEY, "num_retries": 0, "timeout": 60}
CHAT = {**AT, "model": f"openai/{MODEL}", "messages": HELLO, "max_tokens": 8, "temperature": 0}
WORDS = "the test model answers in words, and this provider cannot force a call"
ORDER = {
    "type": "object",
    "properties": {"drink": {"enum": ["tea", "coffee"]}},
    "required": ["drink"],
    "additionalProperties": False,
}


@feature("chat: text, usage and finish reason")
def _():
    answer = litellm.completion(**CHAT)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    same(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@feature("chat: as a server of vLLM's kind, with further fields")
def _():
    answer = litellm.completion(
        **{**CHAT, "model": f"hosted_vllm/{MODEL}"}, extra_body={"min_tokens": 8, "ignore_eos": True}
    )
    same(answer.usage.completion_tokens, 8)


@feature("stream: chunks and usage")
def _():
    chunks = list(litellm.completion(**CHAT, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert litellm.stream_chunk_builder(chunks, messages=HELLO).choices[0].message.content


@feature("async: answer and stream")
async def _():
    assert (await litellm.acompletion(**CHAT)).choices[0].message.content
    chunks = [chunk async for chunk in await litellm.acompletion(**CHAT, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@feature("tools: call, answer, go on", note=FORCED)
def _():
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "now", "parameters": schema}}]
    message = (
        litellm.completion(**{**CHAT, "max_tokens": 24}, tools=tools, tool_choice="required", parallel_tool_calls=False)
        .choices[0]
        .message
    )
    (call,) = message.tool_calls
    same((call.function.name, call.function.arguments), ("now", "{}"))
    history = [
        *HELLO,
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "noon"},
    ]
    assert (
        litellm.completion(**{**CHAT, "messages": history}, tools=tools, tool_choice="none").choices[0].message.content
    )


@feature("structured: JSON Schema")
def _():
    form = {"type": "json_schema", "json_schema": {"name": "order", "schema": ORDER, "strict": True}}
    answer = litellm.completion(**{**CHAT, "max_tokens": 24}, response_format=form)
    assert json.loads(answer.choices[0].message.content)["drink"] in ("tea", "coffee")


@feature("completions: text")
def _():
    answer = litellm.text_completion(
        model=f"text-completion-openai/{MODEL}", prompt="The sky is", max_tokens=8, temperature=0, **AT
    )
    assert answer.choices[0].text


@feature("embeddings: floats")
def _():
    answer = litellm.embedding(model=f"openai/{MODEL}", input=["a cat", "a dog"], encoding_format="float", **AT)
    same([entry["index"] for entry in answer.data], [0, 1])


@feature("responses: text")
def _():
    answer = litellm.responses(model=f"openai/{MODEL}", input="Say hello.", max_output_tokens=16, temperature=0, **AT)
    assert answer.output_text


@feature("chat: as a server of Anthropic's kind")
def _():
    answer = litellm.completion(**{**CHAT, "model": f"anthropic/{MODEL}", "api_base": URL})
    assert answer.choices[0].message.content


@feature("chat: as a server of Ollama's kind, whole and streamed")
def _():
    fields = {**CHAT, "model": f"ollama_chat/{MODEL}", "api_base": URL}
    answer = litellm.completion(**fields)
    assert answer.choices[0].message.content
    assert answer.usage.prompt_tokens > answer.usage.completion_tokens > 0
    chunks = list(litellm.completion(**fields, stream=True))
    same("".join(chunk.choices[0].delta.content or "" for chunk in chunks), answer.choices[0].message.content)


@feature("structured: as a server of Ollama's kind")
def _():
    form = {"type": "json_schema", "json_schema": {"name": "order", "schema": ORDER, "strict": True}}
    fields = {**CHAT, "model": f"ollama_chat/{MODEL}", "api_base": URL, "max_tokens": 24}
    answer = litellm.completion(**fields, response_format=form)
    assert json.loads(answer.choices[0].message.content)["drink"] in ("tea", "coffee")


@feature("tools: as a server of Ollama's kind", note=WORDS)
def _():
    fields = {**CHAT, "model": f"ollama_chat/{MODEL}", "api_base": URL}
    schema = {"type": "object", "properties": {}}
    tools = [{"type": "function", "function": {"name": "now", "parameters": schema}}]
    assert litellm.completion(**fields, tools=tools).choices[0].message
    call = {"id": "call00001", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    history = [
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "noon"},
    ]
    assert litellm.completion(**{**fields, "messages": history}, tools=tools).choices[0].message.content


@feature("completions: as a server of Ollama's kind, whole and streamed")
def _():
    fields = {**CHAT, "model": f"ollama/{MODEL}", "api_base": URL}
    assert litellm.completion(**fields).choices[0].message.content
    chunks = list(litellm.completion(**fields, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@feature("embeddings: as a server of Ollama's kind")
def _():
    try:
        answer = litellm.embedding(model=f"ollama/{MODEL}", input=["a cat", "a dog"], api_base=URL, api_key=KEY)
    except litellm.AuthenticationError:
        raise ImpossibleError("this version sends no key with the inputs; later ones do") from None
    same(len(answer.data), 2)


@feature("models: as a server of Ollama's kind")
def _():
    os.environ["OLLAMA_API_KEY"], os.environ["OLLAMA_API_BASE"] = KEY, URL
    information = litellm.get_model_info(f"ollama/{MODEL}")
    assert information["max_tokens"] > 0


@feature("errors: its own classes")
def _():
    for fields, kind in (
        ({"temperature": 9}, litellm.BadRequestError),
        ({"model": "openai/gpt-9"}, litellm.NotFoundError),
        ({"api_key": "bad"}, litellm.AuthenticationError),
        ({"messages": [{"role": "user", "content": "word " * 20_000}]}, litellm.ContextWindowExceededError),
    ):
        raised(kind, litellm.completion, **{**CHAT, **fields})


run()
