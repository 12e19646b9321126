"""Prompts of well-known families equal those of transformers; features missing in templates are added or refused."""

import json

import pytest

from engine.api import GenerationRequest, PromptOptions, RequestError, Tool
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import LocalRenderer
from tests.engine.inputs.families import (
    ANSWER,
    BOS,
    CALL,
    EOS,
    FAMILIES,
    PLAIN,
    RESULT,
    SYSTEM,
    TOOL,
    USER,
    WITH_CALLS,
    WITH_SYSTEM,
    source,
)
from tests.engine.tiny_tokenizer import tiny_tokenizer

PROCESSORS = {
    family: PromptProcessor(tiny_tokenizer(**{"tokenizer.chat_template": source(family)}), LocalRenderer())
    for family in FAMILIES
}
TOOLS = (Tool("weather", spec=TOOL),)


def prompt_text(family, messages, tools=(), **options):
    request = GenerationRequest("run", "model", tuple(messages), 0.0, prompt=PromptOptions(**options), tools=tools)
    return PROCESSORS[family].prompt(request, 100_000).text


def reference(family, messages, **options):
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered, _ = render_jinja_template(
        [messages], chat_template=source(family), bos_token=BOS, eos_token=EOS, **options
    )
    return rendered[0]


def in_parts(messages):
    """Return the content as parts, for templates that loop over it."""
    return [message | {"content": [{"type": "text", "text": message["content"]}]} for message in messages]


CASES = [(family, PLAIN, ()) for family in FAMILIES]
CASES += [(family, WITH_SYSTEM, ()) for family in FAMILIES if family != "gemma"]
CASES += [(family, WITH_CALLS, TOOLS) for family in ("llama3", "mistral", "qwen3", "gpt_oss")]
CASES += [(family, [SYSTEM, *WITH_CALLS], TOOLS) for family in ("llama3", "mistral", "qwen3", "gpt_oss")]


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize(("family", "messages", "tools"), CASES)
def test_a_prompt_is_that_of_transformers(family, messages, tools, add_generation_prompt):
    expected = reference(
        family,
        in_parts(messages) if family == "magistral" else messages,
        tools=[TOOL] if tools else None,
        add_generation_prompt=add_generation_prompt,
    )
    assert prompt_text(family, messages, tools, add_generation_prompt=add_generation_prompt) == expected


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ending", ["The answer is", "The answer is  \n", "Grüße <b> {{ x }}", "a"])
def test_a_continued_message_ends_as_in_transformers(family, ending):
    messages = [USER, ANSWER, USER, {"role": "assistant", "content": ending}]
    expected = reference(family, in_parts(messages) if family == "magistral" else messages, continue_final_message=True)
    assert prompt_text(family, messages, add_generation_prompt=False, continue_final_message=True) == expected


def test_empty_message_is_left_open_after_its_header():
    messages = [USER, {"role": "assistant", "content": ""}]
    text = prompt_text(
        "llama3",
        messages,
        add_generation_prompt=False,
        continue_final_message=True,
        template_kwargs={"date_string": "x"},
    )
    assert text.endswith("<|start_header_id|>assistant<|end_header_id|>\n\n")


def test_a_message_of_the_user_can_be_left_open_too():
    assert prompt_text("chatml", [SYSTEM, USER], continue_final_message=True).endswith("<|im_start|>user\nHello <b>")


def test_variables_reach_the_template_that_uses_them():
    closed = prompt_text("qwen3", PLAIN, template_kwargs={"enable_thinking": False})
    assert closed == reference("qwen3", PLAIN, add_generation_prompt=True, enable_thinking=False)
    assert closed.endswith("<think>\n\n</think>\n\n")
    assert "Reasoning: high" in prompt_text(
        "gpt_oss", PLAIN, template_kwargs={"reasoning_effort": "high", "verbosity": "low"}
    )
    assert "Today: 1 May" in prompt_text("llama3", PLAIN, template_kwargs={"date_string": "1 May"})


def test_reasoning_reaches_templates_in_the_form_that_they_support():
    turn = {"role": "assistant", "content": "", "reasoning": "hm", "tool_calls": [CALL]}
    assert "<think>\nhm\n</think>" in prompt_text("qwen3", [USER, turn, RESULT])
    assert (
        "analysis<|message|>hm<|end|><|start|>assistant to=functions.weather<|channel|>commentary json"
        in prompt_text("gpt_oss", [USER, turn, RESULT])
    )
    assert "[THINK]hm[/THINK]Good day." in prompt_text("magistral", [USER, ANSWER | {"reasoning": "hm"}, USER])


OPEN = {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "closed": False}], "reasoning": "Let me"}


@pytest.mark.parametrize(
    ("family", "end"),
    [("qwen3", "<think>\nLet me"), ("magistral", "[THINK]Let me"), ("gpt_oss", "analysis<|message|>Let me")],
)
def test_a_continued_message_ends_in_its_open_reasoning(family, end):
    assert prompt_text(family, [USER, OPEN], add_generation_prompt=False, continue_final_message=True).endswith(end)


def test_a_continued_message_whose_template_hides_reasoning_ends_at_its_content():
    assert prompt_text("chatml", [USER, OPEN], continue_final_message=True).endswith("<|im_start|>assistant\n")


def test_end_tag_of_open_reasoning_is_removed_inside_a_conversation():
    message = OPEN | {"content": [{"type": "text", "text": "Yes."}, *OPEN["content"]]}
    assert prompt_text("qwen3", [USER, message], add_generation_prompt=False).endswith(
        "<think>\nLet meYes.<|im_end|>\n"
    )


# Tools in templates that have no place for them


def test_a_template_without_tools_gets_them_in_its_system_message():
    text = prompt_text("chatml", WITH_SYSTEM, TOOLS)
    assert text.startswith("<|im_start|>system\nBe kind.\n\n# Tools")
    assert json.dumps(TOOL) in text
    assert "<tool_call>" in text
    assert prompt_text("chatml", PLAIN, TOOLS).startswith("<|im_start|>system\n# Tools")
    assert "Be kind.\n\n# Tools" in prompt_text("chatml", [{"role": "developer", "content": "Be kind."}, USER], TOOLS)


def test_a_template_without_system_messages_gets_tools_from_the_user():
    text = prompt_text("gemma", PLAIN, TOOLS)
    assert text.startswith("<|im_start|><start_of_turn>user\n# Tools")
    assert text.count("# Tools") == 1
    assert "</tool_call>\n\nHello <b><end_of_turn>" in text


def test_a_template_that_loops_over_parts_gets_them_in_a_part():
    """Otherwise a template that shows only the first part would drop the tools."""
    assert "[SYSTEM_PROMPT]Be kind.\n\n# Tools" in prompt_text("magistral", in_parts(WITH_SYSTEM), TOOLS)
    assert "[SYSTEM_PROMPT]# Tools" in prompt_text("magistral", [{"role": "system", "content": []}, USER], TOOLS)


def test_calls_are_not_lost_in_a_template_that_does_not_show_them():
    text = prompt_text("chatml", WITH_CALLS, TOOLS)
    assert (
        '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": '
        '"Köln"}}\n</tool_call><|im_end|>\n' in text
    )
    assert "<|im_start|>tool\nrain<|im_end|>" in text


# Harmony


def test_every_result_carries_the_name_of_its_call():
    other = {"id": "other", "type": "function", "function": {"name": "clock", "arguments": {}}}
    results = [{"role": "tool", "tool_call_id": "other", "content": "noon"}, RESULT]
    text = prompt_text(
        "gpt_oss", [USER, {"role": "assistant", "content": "", "tool_calls": [CALL, other]}, *results], TOOLS
    )
    weather = 'to=functions.weather<|channel|>commentary json<|message|>{"city": "Köln"}<|call|>'
    assert f'{weather}<|start|>functions.weather to=assistant<|channel|>commentary<|message|>"rain"<|end|>' in text
    assert (
        "commentary json<|message|>{}<|call|><|start|>functions.clock "
        'to=assistant<|channel|>commentary<|message|>"noon"<|end|>' in text
    )


def test_analysis_before_the_last_final_message_is_dropped():
    turn = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    messages = [
        USER,
        turn | {"reasoning": "early"},
        RESULT,
        ANSWER | {"reasoning": "mid"},
        USER,
        turn | {"reasoning": "late"},
        RESULT,
    ]
    text = prompt_text("gpt_oss", messages, TOOLS)
    assert "early" not in text
    assert "mid" not in text
    assert "analysis<|message|>late<|end|>" in text


def test_text_before_a_call_joins_its_analysis():
    turn = {"role": "assistant", "content": "Looking.", "reasoning": "hm", "tool_calls": [CALL]}
    assert "analysis<|message|>hm\n\nLooking.<|end|>" in prompt_text("gpt_oss", [USER, turn, RESULT], TOOLS)


@pytest.mark.parametrize(
    ("family", "messages", "words"),
    [
        ("gemma", [SYSTEM, USER], "System role not supported"),
        ("mistral", [USER, USER], "Roles must alternate"),
        ("gpt_oss", [USER, RESULT], "A result needs a call before it"),
    ],
)
def test_refusal_by_the_template_is_a_request_error(family, messages, words):
    with pytest.raises(RequestError, match=words) as refusal:
        prompt_text(family, messages)
    assert refusal.value.param == "messages"
