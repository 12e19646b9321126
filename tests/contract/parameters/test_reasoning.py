"""Reasoning: examples in the prompt show the model a format that needs no special tokens."""

from __future__ import annotations

import re

import pytest

from tests.contract.conftest import invariant_server
from tests.contract.parameters.conftest import asker, joined


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Return a client of a server with a reasoning parser.

    Other servers have none, as with a parser even a constrained answer may begin with reasoning.
    """
    served = invariant_server(tmp_path_factory.mktemp("thinking"), LIGHTCONE_REASONING_PARSER="hunyuan_a13b")
    with served.running(), asker(served) as client:
        yield client


def turns(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


def thought(text: str, answer: str) -> str:
    return f"<think>\n{text}\n</think>\n<answer>\n{answer}\n</answer>"


THINKING = {
    "messages": [
        *turns(("Say 1.", thought("The number is one.", "1")), ("Say 2.", thought("The number is two.", "2"))),
        {"role": "user", "content": "Say 3."},
    ],
    "max_tokens": 40,
}
THOUGHT = "The number is three."


@pytest.mark.parameter("include_reasoning")
def test_reasoning_is_separate_from_the_content_and_can_be_excluded(ask):
    shown, hidden = ask.answer(**THINKING), ask.answer(include_reasoning=False, **THINKING)
    message = shown["choices"][0]["message"]
    assert (message["reasoning"], message["reasoning_content"], message["content"]) == (THOUGHT, THOUGHT, "3")
    assert hidden["choices"][0]["message"]["reasoning"] is None
    assert hidden["choices"][0]["message"]["content"] == "3"
    assert shown["usage"] | {"prompt_tokens_details": None} == hidden["usage"] | {"prompt_tokens_details": None}
    assert shown["usage"]["completion_tokens_details"]["reasoning_tokens"] >= 4


@pytest.mark.parameter("include_reasoning")
def test_streamed_reasoning_comes_before_the_content(ask):
    chunks = ask.chunks(**THINKING)
    assert (joined(chunks, "reasoning"), joined(chunks)) == (THOUGHT, "3")
    kinds = [key for chunk in chunks for key in chunk["choices"][0]["delta"] if key in ("reasoning", "content")]
    assert kinds[1:] == sorted(kinds[1:], reverse=True)
    assert joined(ask.chunks(include_reasoning=False, **THINKING), "reasoning") == ""


@pytest.mark.parameter("thinking_token_budget")
def test_a_spent_budget_ends_the_thoughts(ask):
    answer = ask.answer(thinking_token_budget=2, **THINKING)
    message = answer["choices"][0]["message"]
    assert THOUGHT.startswith(message["reasoning"])
    assert len(message["reasoning"]) < len(THOUGHT)
    whole = ask.answer(**THINKING)["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] < whole
    assert message["content"]
    assert ask.message(thinking_token_budget=-1, **THINKING)["reasoning"] == THOUGHT
    for bad in (-2, "5", 1.5):
        assert ask.refusal(thinking_token_budget=bad)[0] == "thinking_token_budget"


@pytest.mark.parameter("structured_outputs")
def test_a_grammar_begins_after_the_reasoning(ask):
    for fields in ({}, {"thinking_token_budget": 2}):
        message = ask.message(**THINKING, structured_outputs={"regex": "[0-9]{3}"}, **fields)
        assert THOUGHT.startswith(message["reasoning"])
        assert re.fullmatch("[0-9]{3}", message["content"])
