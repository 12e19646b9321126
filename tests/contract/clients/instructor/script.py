"""instructor, which makes pydantic objects of answers, in the modes that servers of OpenAI's shape have."""

from typing import Literal

import instructor
import openai
import pydantic
from reporting import HELLO, KEY, MODEL, URL, feature, run

AT = {"api_key": KEY, "base_url": f"{URL}/v1", "max_retries": 0, "timeout": 60}
ASKED = {"model": MODEL, "messages": HELLO, "temperature": 0, "max_tokens": 40, "max_retries": 0}


class Order(pydantic.BaseModel):
    """A drink to order."""

    drink: Literal["tea", "coffee"]


def made(mode):
    return instructor.from_openai(openai.OpenAI(**AT), mode=mode).chat.completions.create(response_model=Order, **ASKED)


@feature("tools: an object by a forced call")
def _():
    assert isinstance(made(instructor.Mode.TOOLS), Order)


@feature("structured: an object by JSON Schema")
def _():
    assert isinstance(made(instructor.Mode.JSON_SCHEMA), Order)


@feature("structured: with the whole completion")
def _():
    client = instructor.from_openai(openai.OpenAI(**AT), mode=instructor.Mode.JSON_SCHEMA)
    order, completion = client.chat.completions.create_with_completion(response_model=Order, **ASKED)
    assert isinstance(order, Order)
    assert completion.usage.total_tokens > 0


@feature("stream: partial objects")
def _():
    client = instructor.from_openai(openai.OpenAI(**AT), mode=instructor.Mode.JSON_SCHEMA)
    *_, last = client.chat.completions.create_partial(response_model=Order, **ASKED)
    assert last.drink in ("tea", "coffee"), last


@feature("async: an object")
async def _():
    client = instructor.from_openai(openai.AsyncOpenAI(**AT), mode=instructor.Mode.TOOLS)
    assert isinstance(await client.chat.completions.create(response_model=Order, **ASKED), Order)


run()
