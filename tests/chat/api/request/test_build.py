"""Checked values become the engine's request, each in its place."""

import json
from dataclasses import replace

import pytest
from django.conf import settings
from django.test import override_settings

from chat.access.keys import Caller
from chat.api.request.parse import request_parse
from chat.errors import ApiError
from engine.api import (
    BeamOptions,
    Constraint,
    ConstraintKind,
    GenerationRequest,
    ProcessorCall,
    RepetitionRule,
    Tool,
    ToolChoice,
    ToolMode,
)
from engine.api.wire import request_from_plain, request_to_plain
from engine.inputs.limits import ContextLimits, choice_token_limit
from tests.chat.api.request.bad_values import MESSAGES, tool
from tests.chat.api.request.building import generation_built

CALLER = Caller(
    1,
    "testing0001",
    1,
    1,
    "1",
    frozenset({"inference", "chat_template", "logits_processors", "mm_kwargs"}),
    min_priority=-5,
)
LOOSE = r"[ \t\n\r]{0,64}"


def build(caller: Caller = CALLER, defaults: dict | None = None, **fields) -> GenerationRequest:
    return generation_built(request_parse({"messages": MESSAGES, **fields}), caller, defaults=defaults)


def structured(**keys) -> Constraint | None:
    return build(structured_outputs=keys).constraint


def test_a_blank_is_a_valid_regex():
    assert structured(regex=" ") == Constraint(ConstraintKind.REGEX, " ", "structured_outputs.regex")


def test_masks_and_biases_reach_the_sampling_params():
    sampling = build(
        logit_bias={"5": 101, "7": -1000, "9": "1.5", "11": True},
        allowed_token_ids=["3", 4.0],
        bad_words=["no", " never"],
    ).sampling
    assert sampling.logit_bias == ((5, 100.0), (7, -100.0), (9, 1.5), (11, 1.0))
    assert sampling.allowed_token_ids == (3, 4)
    assert sampling.bad_words == ("no", " never")
    assert build(allowed_token_ids=None).sampling.allowed_token_ids is None


def test_processors_and_their_free_values_reach_the_sampling_params():
    request = build(
        logits_processors=["a", {"qualname": "b", "args": [1], "kwargs": {"c": "d"}}, {"qualname": "e"}],
        vllm_xargs={"x": True, "y": [1, "z"]},
    )
    assert request.sampling.processors == (ProcessorCall("a"), ProcessorCall("b", (1,), {"c": "d"}), ProcessorCall("e"))
    assert request.sampling.processor_args == {"x": 1, "y": [1, "z"]}
    assert type(request.sampling.processor_args["x"]) is int


def test_stop_fields_reach_the_stop_rules():
    stop = build(
        stop=["a"],
        stop_token_ids=[7],
        ignore_eos=True,
        include_stop_str_in_output=1,
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        repetition_detection={"max_pattern_size": 4, "min_count": 3},
    ).stop
    assert (stop.stop, stop.stop_token_ids, stop.ignore_eos, stop.include_stop_str_in_output) == (
        ("a",),
        (7,),
        True,
        True,
    )
    assert (stop.skip_special_tokens, stop.spaces_between_special_tokens) == (False, False)
    assert stop.repetition == RepetitionRule(4, 1, 3)
    assert build(repetition_detection={"min_count": 1}).stop.repetition is None


def test_logprob_fields_reach_the_logprob_options():
    options = build(logprobs=True, top_logprobs=3, prompt_logprobs=0).logprobs
    assert (options.enabled, options.top, options.prompt) == (True, 3, 0)
    assert build(logprobs=True, logprob_token_ids=[5, 6]).logprobs.token_ids == (5, 6)
    assert build().logprobs.prompt is None


def test_prompt_fields_reach_the_prompt_options():
    prompt = build(
        add_special_tokens=True,
        chat_template="{{ messages }}",
        documents=[{"title": "t"}],
        truncate_prompt_tokens=5,
        truncation_side="right",
        return_token_ids=True,
        return_prompt_text=True,
    ).prompt
    assert (prompt.add_generation_prompt, prompt.add_special_tokens, prompt.chat_template) == (
        True,
        True,
        "{{ messages }}",
    )
    assert (prompt.documents, prompt.truncate_to, prompt.truncation_side) == (({"title": "t"},), 5, "right")
    assert (prompt.returns_ids, prompt.returns_text) == (True, True)


def test_continuing_a_message_switches_the_generation_prompt_off():
    prompt = build(continue_final_message=True).prompt
    assert (prompt.continue_final_message, prompt.add_generation_prompt) == (True, False)


@pytest.mark.parametrize(
    ("fields", "variables"),
    [
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low", "enable_thinking": True}),
        ({"reasoning_effort": "none"}, {"reasoning_effort": "none", "enable_thinking": False}),
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
            {"reasoning_effort": "none", "enable_thinking": True},
        ),
        ({"verbosity": "high", "chat_template_kwargs": {"x": [1]}}, {"verbosity": "high", "x": [1]}),
        ({"verbosity": None, "reasoning_effort": None, "chat_template_kwargs": None}, {}),
    ],
)
def test_template_fields_become_template_variables(fields, variables):
    assert build(**fields).prompt.template_kwargs == variables


def test_tools_as_the_template_sees_them():
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    request = build(
        tools=[
            {
                "type": "function",
                "function": {"name": "f", "description": "d", "parameters": schema, "strict": True},
                "cache_control": {},
            },
            {"function": {"name": "g", "parameters": None}},
        ]
    )
    assert request.tools == (
        Tool(
            "f", schema, True, {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}
        ),
        Tool("g", None, False, {"type": "function", "function": {"name": "g"}}),
    )
    assert request.tool_choice == ToolChoice(ToolMode.AUTO)


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        (None, ToolChoice(ToolMode.AUTO)),
        ("none", ToolChoice(ToolMode.NONE)),
        ("auto", ToolChoice(ToolMode.AUTO)),
        ("required", ToolChoice(ToolMode.REQUIRED)),
        ({"type": "function", "function": {"name": "g"}}, ToolChoice(ToolMode.NAMED, ("g",))),
        ({"function": {"name": "g"}}, ToolChoice(ToolMode.NAMED, ("g",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [tool("g")]}},
            ToolChoice(ToolMode.REQUIRED, ("g",)),
        ),
    ],
)
def test_tool_choices_are_built(choice, read):
    assert build(tools=[tool("f"), tool("g")], tool_choice=choice).tool_choice == read


def test_without_tools_nothing_is_parsed():
    assert build(tools=[], tool_choice="auto").tool_choice == ToolChoice()
    assert build(tools=None).tools == ()


def test_parallel_tool_calls_false_limits_to_one_call():
    assert build(tools=[tool()], parallel_tool_calls=False).tool_choice.is_parallel is False
    assert build(tools=[tool()], parallel_tool_calls=None).tool_choice.is_parallel is True


@pytest.mark.parametrize(
    ("call", "mode", "names"),
    [(None, ToolMode.AUTO, ()), ("none", ToolMode.NONE, ()), ({"name": "f"}, ToolMode.NAMED, ("f",))],
)
def test_functions_are_read_as_tools(call, mode, names):
    request = build(functions=[{"name": "f", "parameters": {}}], function_call=call)
    assert request.tools == (Tool("f", {}, False, {"type": "function", "function": {"name": "f", "parameters": {}}}),)
    assert request.tool_choice == ToolChoice(mode, names, is_parallel=False)


@pytest.mark.parametrize(
    ("keys", "kind", "source"),
    [
        ({"json": {"b": 1, "a": 2}}, ConstraintKind.JSON_SCHEMA, '{"b":1,"a":2}'),
        ({"json": ' {"b": 1} '}, ConstraintKind.JSON_SCHEMA, '{"b":1}'),
        ({"regex": "a+"}, ConstraintKind.REGEX, "a+"),
        ({"choice": ["é", "b"]}, ConstraintKind.CHOICE, '["é","b"]'),
        ({"grammar": "root ::= 'a'"}, ConstraintKind.GRAMMAR, "root ::= 'a'"),
        ({"json_object": True}, ConstraintKind.JSON_OBJECT, ""),
        (
            {"structural_tag": '{"format": {"type": "any_text"}, "extra": 1}'},
            ConstraintKind.STRUCTURAL_TAG,
            '{"type":"structural_tag","format":{"type":"any_text"}}',
        ),
    ],
)
def test_structured_outputs_become_constraints(keys, kind, source):
    (key,) = keys
    assert structured(**keys) == Constraint(kind, source, f"structured_outputs.{key}")


@pytest.mark.parametrize(
    ("name", "value", "kind", "source"),
    [
        ("guided_json", {"type": "object"}, ConstraintKind.JSON_SCHEMA, '{"type":"object"}'),
        ("guided_json", '{"type": "object"}', ConstraintKind.JSON_SCHEMA, '{"type":"object"}'),
        ("guided_regex", "a+", ConstraintKind.REGEX, "a+"),
        ("guided_choice", ["a", "b"], ConstraintKind.CHOICE, '["a","b"]'),
        ("guided_grammar", "root ::= 'a'", ConstraintKind.GRAMMAR, "root ::= 'a'"),
    ],
)
def test_older_names_of_constraints_are_accepted(name, value, kind, source):
    """They were ignored, and the answers were unconstrained."""
    assert build(**{name: value}).constraint == Constraint(kind, source, name)
    gaps = build(
        **{name: value}, guided_whitespace_pattern=" ", structured_outputs={"disable_additional_properties": False}
    ).constraint
    assert (gaps.kind, gaps.param, gaps.whitespace, gaps.closes_objects) == (kind, name, " ", False)


def test_json_options_are_built():
    assert structured(json={}, disable_any_whitespace=False).whitespace == LOOSE
    assert structured(json={}, disable_any_whitespace=True).whitespace == ""
    assert structured(json={}, whitespace_pattern=r"[ \n]?").whitespace == r"[ \n]?"
    assert structured(json={}, disable_any_whitespace=False, whitespace_pattern=" ").whitespace == " "
    assert (
        structured(json={}).closes_objects
        is structured(json={}, disable_additional_properties=None).closes_objects
        is True
    )
    assert structured(json={}, disable_additional_properties=False).closes_objects is False


SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("given", "kind", "source", "param"),
    [
        ({"type": "json_object"}, ConstraintKind.JSON_OBJECT, "", "response_format"),
        (
            {"type": "json_object", "schema": SCHEMA},
            ConstraintKind.JSON_SCHEMA,
            json.dumps(SCHEMA),
            "response_format.schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": False}},
            ConstraintKind.JSON_SCHEMA,
            json.dumps(SCHEMA),
            "response_format.json_schema.schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "n"}},
            ConstraintKind.JSON_OBJECT,
            "",
            "response_format.json_schema",
        ),
        (
            {"type": "structural_tag", "structures": [{"begin": "<a>", "end": "</a>"}], "triggers": ["<"]},
            ConstraintKind.STRUCTURAL_TAG,
            '{"type": "structural_tag", "structures": [{"begin": "<a>", "end": "</a>"}], "triggers": ["<"]}',
            "response_format",
        ),
    ],
)
def test_response_formats_become_constraints(given, kind, source, param):
    compact = source.replace(": ", ":").replace(", ", ",")
    assert build(response_format=given).constraint == Constraint(kind, compact, param)
    loose = build(response_format=given, structured_outputs={"disable_any_whitespace": False}).constraint
    assert loose == Constraint(kind, compact, param, whitespace=LOOSE)


def test_response_format_text_is_no_constraint():
    assert build(response_format={"type": "text"}).constraint is None


def test_a_forced_call_replaces_the_format_and_keeps_its_options():
    request = build(
        tools=[tool()],
        tool_choice="required",
        response_format={"type": "json_object"},
        structured_outputs={"disable_any_whitespace": False, "disable_additional_properties": False},
    )
    assert request.constraint is None
    assert (request.tool_choice.whitespace, request.tool_choice.closes_objects) == (LOOSE, False)
    assert build(tools=[tool()], tool_choice="required").tool_choice.closes_objects


def test_beams_predictions_budgets_and_groups_are_built():
    request = build(
        n=3,
        temperature=0,
        use_beam_search=True,
        length_penalty=0.5,
        prediction={"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        thinking_token_budget=0,
        prompt_cache_key="k",
    )
    assert (request.num_choices, request.beam) == (3, BeamOptions(0.5))
    assert (request.prediction, request.thinking_token_budget, request.group) == ("ab", 0, "k")
    assert build(thinking_token_budget=-1).thinking_token_budget is None
    assert build(length_penalty=3).beam is None


def test_n_above_1_is_checked_against_the_models_temperature():
    with pytest.raises(ApiError) as caught:
        build(n=2, defaults={"temperature": 0})
    assert caught.value.param == "n"
    assert build(n=2, defaults={"temperature": 0}, use_beam_search=True).num_choices == 2


def test_a_full_request_round_trips_through_json():
    request = build(
        logit_bias={"5": 1},
        logits_processors=[{"qualname": "b", "kwargs": {"c": [1]}}],
        tools=[tool(parameters=SCHEMA)],
        response_format={"type": "json_object"},
        repetition_detection={"max_pattern_size": 4, "min_count": 3},
        documents=[{"a": "b"}],
        chat_template_kwargs={"a": {"b": [None]}},
        use_beam_search=False,
        prediction={"type": "content", "content": "x"},
    )
    assert request_from_plain(json.loads(json.dumps(request_to_plain(request)))) == request


def test_the_installation_token_limit_applies_without_max_tokens():
    with override_settings(LIGHTCONE_LIMITS=replace(settings.LIGHTCONE_LIMITS, max_output_tokens=50)):
        assert build().stop.absent_max_tokens == 50
        assert build(n=2).stop.absent_max_tokens == 50
        assert build(max_tokens=7).stop.max_tokens == 7


def test_the_models_token_limit_applies_without_max_tokens():
    """`max_new_tokens` of generation_config.json was ignored."""
    defaults = {"max_completion_tokens": 512}
    assert build(defaults=defaults).stop.absent_max_tokens == 512
    for name in ("max_tokens", "max_completion_tokens"):
        assert build(defaults=defaults, **{name: 900}).stop.max_tokens == 900
    most = settings.LIGHTCONE_LIMITS.max_choice_tokens
    assert build(defaults={"max_completion_tokens": 2 * most}).stop.absent_max_tokens == most
    assert build(defaults={"max_completion_tokens": None}).stop.absent_max_tokens == most


def test_several_choices_without_max_tokens_share_the_request_limit():
    request = build(n=2)
    assert (request.stop.max_tokens, request.stop.absent_max_tokens) == (
        None,
        settings.LIGHTCONE_LIMITS.max_choice_tokens // 2,
    )
    assert choice_token_limit(request, 10, ContextLimits(max_model_len=4096, logits_width=1000)) == 4086
