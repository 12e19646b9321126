"""Fields that need a right of the key, and the queue placement that a key permits."""

import pytest
from django.test import override_settings

from chat.access.keys import Caller
from chat.api.request.build import QueuePlacement, rights_check
from chat.api.request.parse import request_parse
from chat.errors import ApiError
from tests.chat.api.request.bad_values import MESSAGES, tool
from tests.chat.api.request.building import generation_built

GATED = [
    ({"chat_template": "{{ messages }}"}, "untrusted_chat_template", "chat_template", "Send chat templates"),
    ({"logits_processors": ["x"]}, "unsupported_parameter", "logits_processors", "Use logits processors"),
    (
        {"kv_transfer_params": {"remote_host": "10.0.0.1"}},
        "unsupported_parameter",
        "kv_transfer_params",
        "leave it out",
    ),
    ({"mm_processor_kwargs": {"a": 1}}, "unsupported_parameter", "mm_processor_kwargs", "Set media options"),
    ({"media_io_kwargs": {"image": {}}}, "unsupported_parameter", "media_io_kwargs", "Set media options"),
    ({"priority": -1}, "invalid_value", "priority", "at least 0"),
]


def caller(*rights: str, min_priority: int = 0) -> Caller:
    return Caller(1, "testing0001", 1, 1, "1", frozenset({"inference", *rights}), min_priority=min_priority)


def placement(who: Caller, **fields) -> QueuePlacement:
    return rights_check(request_parse({"messages": MESSAGES, **fields}), model="m", caller=who)


def refused(who: Caller, **fields) -> ApiError:
    parsed = request_parse({"messages": MESSAGES, **fields})
    with pytest.raises(ApiError) as caught:
        rights_check(parsed, model="m", caller=who)
    assert caught.value.status == 400
    caught.value.rename_fields(parsed.field_names)
    return caught.value


@pytest.mark.parametrize(("fields", "code", "param", "remedy"), GATED, ids=[param for _, _, param, _ in GATED])
def test_a_missing_right_is_refused_by_name_with_the_remedy(fields, code, param, remedy):
    error = refused(caller("usage_read", "keys_manage"), **fields)
    assert (error.code, error.param) == (code, param)
    assert remedy in error.message


def test_the_first_missing_right_is_reported():
    fields = {name: value for gate, *_ in reversed(GATED) for name, value in gate.items()}
    for gate, *_ in GATED:
        assert refused(caller(), **fields).param == next(iter(gate))
        fields.pop(next(iter(gate)))


@pytest.mark.parametrize(("right", "fields"), [("chat_template", GATED[0][0]), ("logits_processors", GATED[1][0])])
def test_a_right_permits_its_own_fields_only(right, fields):
    assert placement(caller(right), **fields) == QueuePlacement(0, None)
    refused(caller(*{"chat_template", "logits_processors", "mm_kwargs"} - {right}), **fields)


@pytest.mark.parametrize("name", ["mm_processor_kwargs", "media_io_kwargs"])
def test_a_model_that_reads_text_refuses_media_options_even_with_the_right(name):
    parsed = request_parse({"messages": MESSAGES, name: {"image": {}}})
    with pytest.raises(ApiError) as caught:
        generation_built(parsed, caller("mm_kwargs"))
    error = caught.value
    assert (error.code, error.param) == ("invalid_value", f"{name}.image")


@pytest.mark.parametrize(
    "fields",
    [
        {"kv_transfer_params": {"a": False, "b": None}},
        {"mm_processor_kwargs": {}},
        {"media_io_kwargs": {}},
        {"logits_processors": []},
    ],
)
def test_fields_without_effect_need_no_right(fields):
    assert placement(caller(), **fields) == QueuePlacement(0, None)


@pytest.mark.parametrize(
    ("floor", "fields", "expected"),
    [
        (0, {}, QueuePlacement(0, None)),
        (0, {"priority": 7}, QueuePlacement(7, None)),
        (-5, {"priority": -5}, QueuePlacement(-5, None)),
        (3, {}, QueuePlacement(3, None)),
        (0, {"service_tier": "auto"}, QueuePlacement(0, "default")),
        (0, {"service_tier": "scale"}, QueuePlacement(0, "default")),
        (0, {"service_tier": "flex"}, QueuePlacement(10, "flex")),
        (0, {"service_tier": "priority"}, QueuePlacement(0, "default")),
        (-5, {"service_tier": "priority"}, QueuePlacement(-5, "priority")),
        (-50, {"service_tier": "priority"}, QueuePlacement(-10, "priority")),
        (-5, {"service_tier": "flex", "priority": -2}, QueuePlacement(-2, "default")),
    ],
)
def test_priority_and_service_tier_give_the_queue_placement(floor, fields, expected):
    assert placement(caller(min_priority=floor), **fields) == expected


def test_a_priority_below_the_keys_own_names_the_limit():
    assert "at least -5" in refused(caller(min_priority=-5), priority=-6).message


@override_settings(LIGHTCONE_SCHEDULING_POLICY="fcfs")
def test_priorities_are_refused_under_first_come_first_served():
    assert refused(caller(min_priority=-5), priority=5).param == "priority"
    assert placement(caller(min_priority=-5), service_tier="priority") == QueuePlacement(0, "default")
    assert placement(caller(min_priority=3)) == QueuePlacement(0, None)


@override_settings(LIGHTCONE_TOOL_PARSER="none")
def test_tool_choice_auto_needs_a_parser():
    assert refused(caller(), tools=[tool()]).param == "tool_choice"
    assert refused(caller(), functions=[{"name": "f"}]).param == "function_call"
    assert placement(caller(), tools=[tool()], tool_choice="required")
    assert placement(caller(), tool_choice="auto")
