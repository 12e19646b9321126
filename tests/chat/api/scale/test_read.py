"""Parameters of a Scale request as fields of the Lightcone request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.api.request.parse import request_parse
from chat.api.request.parsed import ParsedRequest
from chat.api.request.schema import ChatCompletionRequest
from chat.api.scale.fields import OWN, SHARED, ScaleChatRequest
from chat.api.scale.read import scale_parse
from chat.errors import ApiError
from engine.api import Constraint, ConstraintKind, RawPrompt, ToolMode

HELLO = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}


def read(**fields: Any) -> ParsedRequest:
    return scale_parse({"model": "m", "messages": HELLO, **fields})


def plain(**fields: Any) -> ParsedRequest:
    """Return the Lightcone request."""
    return request_parse({"model": "m", "messages": HELLO, **fields})


def without_own(parsed: ParsedRequest) -> ParsedRequest:
    """Return the request without the parts that this dialect always sets."""
    generation = replace(parsed.generation, stop=replace(parsed.generation.stop, must_fit=False))
    delivery = replace(parsed.delivery, ignored=())
    return replace(parsed, model=None, model_names=None, generation=generation, delivery=delivery)


def alike(first: ParsedRequest, second: ParsedRequest) -> bool:
    return without_own(first) == without_own(second)


SAME = {
    "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"a": 1},
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": False},
    },
    "include_stop_str_in_output": True,
    "stream": True,
    "stream_options": {},
    "stop": ["a", "b", "c", "d"],
    "frequency_penalty": -2,
    "presence_penalty": 2,
    "logit_bias": {"5": 100, "6": -100},
    "logprobs": True,
    "top_logprobs": 0,
    "max_tokens": 9,
    "max_completion_tokens": 9,
    "n": 2,
    "seed": 2**62,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": -1,
    "user": "ann",
    "modalities": ["text"],
    "prediction": {"type": "content", "content": [{"type": "text", "text": "x"}]},
    "tools": [TOOL],
    "parallel_tool_calls": False,
    "reasoning_effort": "low",
    "metadata": {"a": "b"},
    "store": True,
    "functions": [{"name": "f"}],
}
WITH_OTHERS = {
    "tool_choice": {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    "function_call": {"functions": [{"name": "f"}], "function_call": {"name": "f"}},
    "top_logprobs": {"logprobs": True, "top_logprobs": 3},
    "stream_options": {"stream": True, "stream_options": {"include_usage": True}},
}


@pytest.mark.parametrize(
    "fields",
    [*({name: value} for name, value in SAME.items()), *WITH_OTHERS.values()],
    ids=lambda fields: "+".join(fields),
)
def test_a_shared_parameter_has_the_same_effect_as_in_the_lightcone_request(fields):
    parsed = read(**fields)
    assert alike(parsed, plain(**fields))
    assert not alike(parsed, plain()) or set(fields) & {
        "store",
        "modalities",
        "stream_options",
        "top_logprobs",
        "audio",
    }


def test_every_shared_parameter_has_an_example():
    assert set(SHARED) - set(SAME) - set(WITH_OTHERS) == set()


@pytest.mark.parametrize("name", [name for name in (*OWN, *SHARED) if name not in ("model", "messages")])
def test_null_equals_absent(name):
    assert alike(read(**{name: None}), read())


@pytest.mark.parametrize("name", sorted(set(ChatCompletionRequest().fields) - set(OWN) - set(SHARED)))
def test_lightcone_only_fields_are_unknown_to_scale(name):
    assert alike(read(**{name: object()}), read())


def test_unknown_parameters_are_ignored_and_named():
    parsed = read(api_base="http://10.0.0.1", account_id="a", x=None, **{"🙂": [1]})
    assert alike(parsed, read())
    assert parsed.delivery.ignored == ("api_base", "account_id", "🙂")


# Model.


def test_the_sent_model_name_is_kept_beside_its_candidates():
    parsed = scale_parse({"model": "v/m/d", "messages": HELLO})
    assert parsed.model == "v/m/d"
    assert parsed.model_names == ("v/m/d", "m/d", "v/m", "m")


# Messages.


def test_memory_is_applied_after_roles_are_derived():
    messages = [
        {"role": "system", "content": "s"},
        {"content": "1"},
        {"tool_calls": [{"function": {"name": "f"}}]},
        {"tool_call_id": "c", "content": "2"},
    ]
    kept = read(messages=messages, memory_strategy={"k": 1}).messages
    assert [message["role"] for message in kept] == ["system", "assistant", "tool"]


# Constraints.


def constraint(**fields: Any) -> Constraint | None:
    found: Constraint | None = read(**fields).generation.constraint
    return found


@pytest.mark.parametrize(
    ("fields", "kind", "source"),
    [
        ({"guided_json": {"type": "object"}}, ConstraintKind.JSON_SCHEMA, '{"type":"object"}'),
        ({"guided_json": '{"type": "object"}'}, ConstraintKind.JSON_SCHEMA, '{"type":"object"}'),
        ({"guided_regex": "a+"}, ConstraintKind.REGEX, "a+"),
        ({"guided_choice": ["a", "b"]}, ConstraintKind.CHOICE, '["a","b"]'),
        ({"guided_grammar": 'root ::= "a"'}, ConstraintKind.GRAMMAR, 'root ::= "a"'),
    ],
    ids=str,
)
def test_guided_parameters_are_the_constraints_of_the_lightcone_request(fields, kind, source):
    found = constraint(**fields)
    assert (found.kind, found.source) == (kind, source)


def test_a_whitespace_pattern_is_for_json_alone():
    pattern = {"guided_whitespace_pattern": "[ \n]?"}
    assert constraint(guided_json={}, **pattern).whitespace == "[ \n]?"
    assert constraint(response_format={"type": "json_object"}, **pattern).whitespace == "[ \n]?"
    assert read(tools=[TOOL], tool_choice="required", **pattern).generation.tool_choice.whitespace == "[ \n]?"
    assert constraint(inference_extra_params={"structured_outputs": {"json": {}}}, **pattern).whitespace == "[ \n]?"
    for unused in (
        {},
        {"guided_regex": "a"},
        {"guided_choice": ["a"]},
        {"response_format": {"type": "text"}},
        {"tools": [TOOL]},
    ):
        assert alike(read(**unused, **pattern), read(**unused))


@pytest.mark.parametrize("backend", ["outlines", "lm-format-enforcer"])
def test_a_backend_has_no_effect(backend):
    assert alike(read(guided_json={}, guided_decoding_backend=backend), read(guided_json={}))


def test_response_format_of_text_goes_with_a_guided_parameter():
    assert constraint(guided_choice=["a"], response_format={"type": "text"}).kind == ConstraintKind.CHOICE


def test_options_of_structured_outputs_join_a_guided_parameter():
    options = {"inference_extra_params": {"structured_outputs": {"disable_additional_properties": False}}}
    assert not constraint(guided_json={}, **options).closes_objects
    assert constraint(guided_json={}).closes_objects


# Tools.


def test_a_tool_may_have_any_type_and_a_cache_control():
    tools = [
        {"type": "search", "function": {"name": "f"}, "cache_control": {"type": "ephemeral"}},
        {"function": {"name": "g"}},
    ]
    parsed = read(tools=tools)
    assert [tool.name for tool in parsed.generation.tools] == ["f", "g"]
    assert alike(parsed, plain(tools=[TOOL, {"type": "function", "function": {"name": "g"}}]))
    assert parsed.generation.tool_choice.mode == ToolMode.AUTO


# Candidates.


@pytest.mark.parametrize(
    ("fields", "best_of"), [({"best_of": 1}, None), ({"best_of": 3}, 3), ({"best_of": 2, "n": 2}, 2)]
)
def test_best_of_is_a_number_of_candidates(fields, best_of):
    parsed = read(**fields)
    assert (parsed.generation.best_of, parsed.generation.num_choices) == (best_of, fields.get("n", 1))


def test_a_best_of_one_may_be_streamed_and_greedy():
    assert read(best_of=1, stream=True, temperature=0).generation.best_of is None


# Suffix.


@pytest.mark.parametrize(
    "content", ["def f():", [{"type": "text", "text": "def "}, {"type": "input_text", "text": "f():"}], ["def f():"]]
)
def test_a_suffix_follows_the_text_of_the_last_user_message(content):
    messages = [{"content": "no"}, {"role": "user", "content": content}, {"role": "assistant", "content": "x"}]
    parsed = read(messages=messages, suffix="return 1")
    assert parsed.generation.raw == RawPrompt(text="def f():", suffix="return 1", param="messages")


@pytest.mark.parametrize(
    ("extra", "adds"), [({}, True), ({"add_special_tokens": None}, True), ({"add_special_tokens": False}, False)]
)
def test_a_suffix_request_adds_special_tokens_unless_switched_off(extra, adds):
    assert read(suffix="x", inference_extra_params=extra).generation.prompt.add_special_tokens is adds
    assert read(inference_extra_params=extra).generation.prompt.add_special_tokens is False


def test_an_empty_suffix_is_none():
    assert read(suffix="").generation.raw is None


# Time-outs, and fields beyond this dialect.


@pytest.mark.parametrize(("sent", "seconds"), [(30, 30.0), (0.5, 0.5), ("30", 30.0), ("30.5", 30.5), (1e30, 1e30)])
def test_a_timeout_is_a_number_of_seconds(sent, seconds):
    assert read(inference_timeout=sent).delivery.timeout_s == seconds


@given(
    st.fixed_dictionaries(
        {}, optional={"min_p": st.floats(0, 1), "top_k": st.integers(0, 9), "seed": st.integers(0, 9)}
    )
)
def test_extra_params_are_fields_of_the_lightcone_request(extra):
    assert alike(read(inference_extra_params=extra), plain(**extra))


def test_a_top_level_field_precedes_the_same_field_in_extra_params():
    parsed = read(temperature=0.5, inference_extra_params={"temperature": 9, "top_p": 0.5, "min_p": None})
    draw = parsed.generation.draw
    assert (draw.temperature, draw.top_p, draw.min_p) == (0.5, 0.5, None)


@pytest.mark.parametrize(
    "name",
    [
        "model",
        "messages",
        "stream",
        "stream_options",
        "inference_timeout",
        "inference_extra_params",
        "guided_json",
        "x",
    ],
)
def test_request_level_fields_in_extra_params_are_ignored(name):
    parsed = read(inference_extra_params={name: object()})
    assert alike(parsed, read())
    assert parsed.delivery.ignored == (f"inference_extra_params.{name}",)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer x", "X": 5}])
def test_extra_headers_have_no_effect(headers, caplog):
    with caplog.at_level("DEBUG", "chat"):
        assert alike(read(inference_extra_headers=headers), read())
    assert "Bearer" not in caplog.text


def test_audio_without_the_modality_has_no_effect():
    assert alike(read(audio={"format": "wav", "voice": "alloy"}), read())


def test_prompt_and_limit_must_fit_together():
    assert read().generation.stop.must_fit
    assert not plain().generation.stop.must_fit


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(st.sampled_from([*OWN, *SHARED]), JSON, max_size=6)


@given(BODIES, st.dictionaries(st.sampled_from(sorted(ChatCompletionRequest().fields)), JSON, max_size=4))
def test_any_body_is_read_or_refused_by_a_sent_field_name(body, extra):
    sent = {"model": "m", "messages": HELLO, "inference_extra_params": extra, **body}
    refused = None
    try:
        scale_parse(sent)
    except ApiError as error:
        refused = error
    if refused is not None:
        assert refused.status == 400
        name, _, rest = (refused.param or "").partition(".")
        assert name in sent or refused.code == "missing_required_parameter"
        assert name != "inference_extra_params" or not rest or rest.partition(".")[0] in sent["inference_extra_params"]


def test_the_described_request_has_every_parameter_once():
    fields = ScaleChatRequest().fields
    assert list(fields) == [*OWN, *SHARED]
    assert [name for name, field in fields.items() if field.required] == ["model", "messages"]
    assert all(field.nullable for name, field in fields.items() if not field.required)
