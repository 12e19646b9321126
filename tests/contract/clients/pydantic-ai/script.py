"""pydantic-ai's agents, with the model class for OpenAI's chat completions and the one for its responses."""

from typing import Literal

import pydantic
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from reporting import KEY, MODEL, URL, feature, raised, run, same

PROVIDER = OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY)
CHAT = OpenAIChatModel(MODEL, provider=PROVIDER)
BRIEF = {"temperature": 0, "max_tokens": 8}
ROOMY = {"temperature": 0, "max_tokens": 40}
HELLO = "Say hello in one short sentence."


class Order(pydantic.BaseModel):
    """A drink to order."""

    drink: Literal["tea", "coffee"]


@feature("chat: text and usage")
def _():
    result = Agent(CHAT, instructions="Be brief.", model_settings=BRIEF).run_sync(HELLO)
    assert result.output
    assert result.usage.output_tokens > 0


@feature("chat: the conversation goes on")
def _():
    agent = Agent(CHAT, model_settings=BRIEF)
    first = agent.run_sync(HELLO)
    second = agent.run_sync("And now in French.", message_history=first.all_messages())
    assert second.output
    assert second.usage.input_tokens > first.usage.input_tokens


@feature("async: stream of text")
async def _():
    async with Agent(CHAT, model_settings=BRIEF).run_stream(HELLO) as result:
        assert "".join([piece async for piece in result.stream_text(delta=True)])


@feature("tools: called and answered", note="with an output type by tool: the request then forces calls")
def _():
    agent = Agent(CHAT, output_type=ToolOutput(Order), model_settings=ROOMY)
    result = agent.run_sync(HELLO)
    assert isinstance(result.output, Order)
    kinds = [part.part_kind for message in result.all_messages() for part in message.parts]
    assert "tool-call" in kinds, kinds
    again = agent.run_sync("Another one.", message_history=result.all_messages())
    assert isinstance(again.output, Order)


@feature("tools: offered without being forced", note="the test model answers in words")
def _():
    agent = Agent(CHAT, model_settings=BRIEF)

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    assert agent.run_sync(HELLO).output


@feature("structured: native output by JSON Schema")
def _():
    assert isinstance(Agent(CHAT, output_type=NativeOutput(Order), model_settings=ROOMY).run_sync(HELLO).output, Order)


@feature("structured: streamed")
async def _():
    async with Agent(CHAT, output_type=NativeOutput(Order), model_settings=ROOMY).run_stream(HELLO) as result:
        assert isinstance(await result.get_output(), Order)


@feature("responses: text")
def _():
    model = OpenAIResponsesModel(MODEL, provider=PROVIDER)
    assert Agent(model, model_settings={"temperature": 0, "max_tokens": 16}).run_sync(HELLO).output


@feature("errors: status and body")
def _():
    error = raised(ModelHTTPError, Agent(CHAT, model_settings={"temperature": 9}).run_sync, user_prompt=HELLO)
    same(error.status_code, 400)


run()
