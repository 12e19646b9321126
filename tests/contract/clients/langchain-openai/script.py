"""LangChain's chat model, embeddings and completions for servers of OpenAI's shape."""

from typing import Literal

import openai
import pydantic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from reporting import FORCED, KEY, MODEL, URL, feature, raised, run, same

AT = {"api_key": KEY, "base_url": f"{URL}/v1", "model": MODEL, "max_retries": 0}
CHAT = ChatOpenAI(**AT, temperature=0, max_tokens=8, timeout=60)
ROOMY = ChatOpenAI(**AT, temperature=0, max_tokens=40, timeout=60)
HELLO = [SystemMessage("Be brief."), HumanMessage("Say hello in one short sentence.")]


class Order(pydantic.BaseModel):
    """A drink to order."""

    drink: Literal["tea", "coffee"]


@tool
def weather(city: Literal["Rome", "Oslo"]) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@feature("chat: text, usage and finish reason")
def _():
    answer = CHAT.invoke(HELLO)
    assert answer.content
    same(
        answer.usage_metadata["total_tokens"],
        answer.usage_metadata["input_tokens"] + answer.usage_metadata["output_tokens"],
    )
    assert answer.response_metadata["finish_reason"] in ("stop", "length")


@feature("chat: log-probabilities, stop, further fields by extra_body")
def _():
    model = CHAT.bind(logprobs=True, top_logprobs=2, stop=["\n\n"], extra_body={"min_tokens": 8, "ignore_eos": True})
    answer = model.invoke(HELLO)
    same(answer.usage_metadata["output_tokens"], 8)
    same(len(answer.response_metadata["logprobs"]["content"]), 8)


@feature("stream: chunks and usage")
def _():
    chunks = list(ChatOpenAI(**AT, temperature=0, max_tokens=8, stream_usage=True).stream(HELLO))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    assert whole.content
    assert whole.usage_metadata["output_tokens"] > 0


@feature("async: answer, stream, batch")
async def _():
    assert (await CHAT.ainvoke(HELLO)).content
    assert "".join([chunk.content async for chunk in CHAT.astream(HELLO)])
    same([bool(answer.content) for answer in await CHAT.abatch([HELLO, HELLO])], [True, True])


@feature("tools: call, answer, go on", note=FORCED)
def _():
    called = ROOMY.bind_tools([weather], tool_choice="any", parallel_tool_calls=False).invoke(HELLO)
    (call,) = called.tool_calls
    assert call["args"]["city"] in ("Rome", "Oslo"), call
    result = weather.invoke(call)
    assert isinstance(result, ToolMessage)
    answer = CHAT.bind_tools([weather], tool_choice="none").invoke([*HELLO, called, result])
    assert answer.content


@feature("tools: a named call in a stream, strict", note=FORCED)
def _():
    chunks = list(ROOMY.bind_tools([weather], tool_choice="weather", strict=True).stream(HELLO))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    (call,) = whole.tool_calls
    assert call["args"]["city"] in ("Rome", "Oslo"), call


@feature("tools: bound as they are, without strict", note=FORCED)
def _():
    """LangChain's schemas allow additional properties, but it reads a call with some as invalid."""
    called = ROOMY.bind_tools([weather, Order], tool_choice="any").invoke(HELLO)
    same(called.invalid_tool_calls, [])
    assert called.tool_calls
    for call in called.tool_calls:
        same(set(call["args"]), {"city"} if call["name"] == "weather" else {"drink"})


@feature("structured: JSON Schema")
def _():
    assert isinstance(ROOMY.with_structured_output(Order, method="json_schema").invoke(HELLO), Order)


@feature("structured: function calling")
def _():
    assert isinstance(ROOMY.with_structured_output(Order, method="function_calling").invoke(HELLO), Order)


@feature("structured: streamed")
def _():
    assert isinstance(list(ROOMY.with_structured_output(Order, method="json_schema").stream(HELLO))[-1], Order)


@feature("completions: text and stream")
def _():
    model = OpenAI(**AT, temperature=0, max_tokens=8)
    assert model.invoke("The sky is")
    assert "".join(model.stream("The sky is"))


@feature(
    "embeddings: documents and query",
    note="with `check_embedding_ctx_length=False`, else it sends tokens of another vocabulary",
)
def _():
    vectors = OpenAIEmbeddings(**AT, check_embedding_ctx_length=False)
    one, two = vectors.embed_documents(["a cat", "a dog"])
    same(len(one), len(two))
    assert max(abs(here - there) for here, there in zip(vectors.embed_query("a cat"), one, strict=True)) < 1e-2


@feature("responses: answer and stream")
def _():
    model = ChatOpenAI(**AT, temperature=0, max_tokens=16, use_responses_api=True)
    assert model.invoke(HELLO).text
    assert "".join(chunk.text for chunk in model.stream(HELLO))


@feature("errors: those of OpenAI's client")
def _():
    error = raised(openai.BadRequestError, CHAT.invoke, input=[HumanMessage("word " * 20_000)])
    assert "maximum context length" in str(error), error


run()
