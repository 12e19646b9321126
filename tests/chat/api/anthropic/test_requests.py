"""Fields of a message and their effect on the engine request."""

import base64

import pytest

from engine.api import Task, ToolMode
from tests.chat.api.anthropic.shapes import COUNT_ROUTE, SCHEMA, TOOL, TURN, message, post
from tests.chat.api.conftest import ADMITTED, completed

FORM = {"type": "json_schema", "schema": SCHEMA}


async def asked(api, scripted, **fields):
    """Return the engine's request."""
    response = await post(api, **fields)
    assert response.status_code == 200, response.text
    return scripted.requests[-1]


async def test_sampling_and_limits_reach_the_request(api, scripted):
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["END", "\n\n"]}
    request = await asked(api, scripted, **fields)
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (0.5, 0.9, 5)
    assert (request.stop.max_tokens, request.stop.stop) == (9, ("END", "\n\n"))
    assert (request.model, request.num_choices, request.task) == ("org/tiny", 1, Task.GENERATE)


async def test_temperatures_above_one_are_accepted(api, scripted):
    assert (await asked(api, scripted, temperature=1.5)).sampling.temperature == 1.5


async def test_absent_fields_use_the_models_defaults(api, scripted):
    assert (await asked(api, scripted)).sampling.top_k == 7


@pytest.mark.parametrize("model", [None, "", "tiny", "org/tiny"])
async def test_the_model_may_be_absent(api, scripted, model):
    assert (await asked(api, scripted, model=model)).model == "org/tiny"


async def test_unknown_fields_and_hints_are_ignored(api, scripted):
    hint = {"type": "ephemeral", "ttl": "1h"}
    block = {"type": "text", "text": "hi", "cache_control": hint, "citations": None, "new": 1}
    fields = {
        "cache_control": hint,
        "tools": [{**TOOL, "cache_control": hint, "eager_input_streaming": True}],
        "brand_new": {"a": 1},
    }
    request = await asked(api, scripted, messages=[{"role": "user", "content": [block]}], **fields)
    assert request.messages == ({"role": "user", "content": [{"type": "text", "text": "hi"}]},)


async def test_tools_of_other_types_are_left_out_and_named(api, scripted):
    """Claude Code offers Anthropic's hosted search beside its own tools, which made every request fail."""
    tools = [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        {**TOOL, "type": "custom"},
        {"type": "bash_20250124"},
    ]
    response = await post(api, tools=tools)
    assert response.status_code == 200, response.text
    assert response.headers["x-lightcone-ignored"] == "tools.0:web_search_20250305, tools.2:bash_20250124"
    assert [tool.name for tool in scripted.requests[-1].tools] == [TOOL["name"]]


async def test_null_equals_absent(api, scripted):
    names = (
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "stop_sequences",
        "temperature",
        "top_p",
    )
    others = (
        "top_k",
        "stream",
        "metadata",
        "service_tier",
        "container",
        "context_management",
        "mcp_servers",
        "speed",
        "inference_geo",
    )
    await asked(api, scripted, **dict.fromkeys(names + others))


async def test_values_equal_to_the_default_are_accepted(api, scripted):
    keeps = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    pays = {"type": "billing_policy", "bill_to": "self"}
    await asked(
        api, scripted, context_management=keeps, mcp_servers=[], speed="standard", fallbacks=[], billing_policy=pays
    )


@pytest.mark.parametrize(
    ("choice", "mode", "names", "is_parallel"),
    [
        (None, ToolMode.AUTO, (), True),
        ({"type": "auto"}, ToolMode.AUTO, (), True),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolMode.REQUIRED, (), False),
        ({"type": "tool", "name": "weather"}, ToolMode.NAMED, ("weather",), True),
        ({"type": "none"}, ToolMode.NONE, (), True),
    ],
    ids=str,
)
async def test_tools_and_tool_choice_reach_the_request(api, scripted, choice, mode, names, is_parallel):
    request = await asked(api, scripted, tools=[{**TOOL, "strict": True}], tool_choice=choice)
    (tool,) = request.tools
    function = {"name": "weather", "description": "The weather.", "parameters": SCHEMA}
    assert (tool.name, tool.is_strict, tool.spec) == ("weather", True, {"type": "function", "function": function})
    assert (request.tool_choice.mode, request.tool_choice.names, request.tool_choice.is_parallel) == (
        mode,
        names,
        is_parallel,
    )


async def test_input_examples_join_the_tool_description(api, scripted):
    request = await asked(api, scripted, tools=[{**TOOL, "type": "custom", "input_examples": [{"city": "Ålesund"}]}])
    assert request.tools[0].spec["function"]["description"] == 'The weather.\n\nExamples of input:\n{"city": "Ålesund"}'


@pytest.mark.parametrize(
    ("thinking", "is_on", "budget"),
    [
        (None, False, None),
        ({"type": "disabled"}, False, None),
        ({"type": "adaptive", "display": "summarized"}, True, None),
        ({"type": "enabled", "budget_tokens": 5}, True, 5),
    ],
    ids=str,
)
async def test_thinking_switches_reasoning_on_with_a_budget(api, scripted, thinking, is_on, budget):
    request = await asked(api, scripted, thinking=thinking)
    assert request.prompt.template_kwargs["enable_thinking"] is is_on
    assert request.thinking_token_budget == budget


async def test_effort_reaches_the_template_and_does_not_switch_thinking_on(api, scripted):
    request = await asked(api, scripted, output_config={"effort": "xhigh"})
    assert request.prompt.template_kwargs == {"reasoning_effort": "xhigh", "enable_thinking": False}


@pytest.mark.parametrize("fields", [{"output_config": {"format": FORM}}, {"output_format": FORM}], ids=str)
async def test_an_output_format_is_a_constraint(api, scripted, fields):
    request = await asked(api, scripted, **fields)
    assert '"city"' in request.constraint.source


async def test_the_user_id_is_logged_as_a_label(api, scripted):
    await asked(api, scripted, metadata={"user_id": "u" * 500})
    (trace,) = scripted.traces
    assert (trace.user_label, trace.dialect, trace.route) == ("u" * 256, "messages", "/v1/messages")


async def test_a_begun_answer_is_continued(api, scripted):
    begun = {"role": "assistant", "content": "One, two,"}
    request = await asked(api, scripted, messages=[TURN, begun])
    assert (request.prompt.continue_final_message, request.prompt.add_generation_prompt) == (True, False)
    assert request.messages[-1] == {"role": "assistant", "content": [{"type": "text", "text": "One, two,"}]}


async def test_system_comes_first_as_text_or_blocks(api, scripted):
    for system in ("Be brief.", [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]):
        request = await asked(api, scripted, system=system)
        assert request.messages[0] == {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    assert (await asked(api, scripted, system="")).messages[0]["role"] == "user"


async def test_turns_of_one_role_are_one_message(api, scripted):
    more = {"role": "user", "content": [{"type": "text", "text": "there"}]}
    request = await asked(api, scripted, messages=[TURN, more])
    assert request.messages == (
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "there"}]},
    )


async def test_calls_and_results_of_the_history_are_read(api, scripted):
    messages = [
        TURN,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "so", "signature": "of another server"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}, "caller": None},
                {"type": "tool_use", "id": "c2", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"},
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "is_error": True,
                    "content": [{"type": "text", "text": "no city"}],
                },
                {"type": "tool_result", "tool_use_id": "c2"},
                {"type": "text", "text": "Well?"},
            ],
        },
    ]
    _, assistant, first, second, third, user = (await asked(api, scripted, messages=messages)).messages
    assert (assistant["content"], assistant["reasoning"]) == ([{"type": "text", "text": "I look."}], "so")
    function = {"name": "weather", "arguments": {"city": "Oslo"}}
    assert assistant["tool_calls"][0] == {"id": "c1", "type": "function", "function": function}
    assert [call["id"] for call in assistant["tool_calls"]] == ["c1", "c2"]
    assert first == {"role": "tool", "tool_call_id": "c1", "content": "sunny"}
    assert [part["text"] for part in second["content"]] == ["Error:", "no city"]
    assert third["content"] == ""
    assert user == {"role": "user", "content": [{"type": "text", "text": "Well?"}]}


@pytest.mark.parametrize(
    ("is_error", "content", "text"), [(True, "gone", "Error: gone"), (True, None, "Error:"), (False, "fine", "fine")]
)
async def test_an_error_result_is_marked(api, scripted, is_error, content, text):
    result = {"type": "tool_result", "tool_use_id": "c", "content": content, "is_error": is_error}
    request = await asked(api, scripted, messages=[{"role": "user", "content": [result]}])
    assert request.messages[0]["content"] == text


async def test_text_after_a_call_stays_after_it(api, scripted):
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    answer = {"role": "assistant", "content": [call, {"type": "text", "text": "done"}]}
    request = await asked(api, scripted, messages=[TURN, answer, TURN])
    assert [len(message.get("tool_calls", ())) for message in request.messages] == [0, 1, 0, 0]


async def test_documents_and_search_results_are_text(api, scripted):
    blocks = [
        {
            "type": "document",
            "title": "Moon",
            "context": "A note.",
            "source": {"type": "text", "media_type": "text/plain", "data": "Far."},
        },
        {
            "type": "document",
            "source": {"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        },
        {"type": "search_result", "title": "T", "source": "https://x", "content": [{"type": "text", "text": "found"}]},
    ]
    request = await asked(api, scripted, messages=[{"role": "user", "content": blocks}])
    assert [part["text"] for part in request.messages[0]["content"]] == [
        "Context of the document below: A note.",
        "File: Moon\nFar.",
        "File: document\na\nb",
        "Search result: T\nSource: https://x\nfound",
    ]


async def test_a_pdf_becomes_a_file_part(api, scripted):
    data = base64.b64encode(b"%PDF-1.4").decode()
    document = {
        "type": "document",
        "title": "a.pdf",
        "source": {"type": "base64", "media_type": "application/pdf", "data": data},
    }
    result = {"type": "tool_result", "tool_use_id": "c", "content": [document]}
    user, tool = (await asked(api, scripted, messages=[{"role": "user", "content": [document, result]}])).messages
    file = {"file_data": f"data:application/pdf;base64,{data}", "filename": "a.pdf"}
    assert user["content"] == [{"type": "file", "file": file, "param": "messages.0.content.0.file"}]
    assert tool["content"] == [{"type": "file", "file": file, "param": "messages.1.content.0.file"}]


async def test_the_detail_of_a_document_says_how_closely_its_pages_are_seen(api, scripted):
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    blocks = [{"type": "document", "source": source, "detail": detail} for detail in ("high", None)]
    (user,) = (await asked(api, scripted, messages=[{"role": "user", "content": blocks}])).messages
    assert [part["file"].get("detail") for part in user["content"]] == ["high", None]


async def test_token_counts_use_a_read_task(api, scripted):
    scripted.script = [ADMITTED, completed(output=0)]
    body = {"messages": [TURN], "system": "Be brief.", "tools": [TOOL], "model": "tiny"}
    response = await api.post(COUNT_ROUTE, json=body)
    assert (response.status_code, response.json()) == (200, {"input_tokens": 3})
    assert response.headers["request-id"]
    (request,) = scripted.requests
    assert (request.task, len(request.tools), len(request.messages)) == (Task.READ, 1, 2)
    assert scripted.readers[0].num_left == 1


async def test_a_count_accepts_the_body_of_a_message(api, scripted):
    """Clients send the body of the later message; fields without effect on the prompt are ignored."""
    scripted.script = [ADMITTED, completed(output=0)]
    response = await api.post(COUNT_ROUTE, json=message(stream=True, temperature=1))
    assert response.json() == {"input_tokens": 3}
