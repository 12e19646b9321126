"""Prompts and texts of the page are read by a loaded model alone, for a signed-in user, without computing."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import AsyncClient

from chat.api.answering import pipeline
from chat.catalog import named_models
from chat.playground import api_views, offered
from chat.relay.state.workers import ModelCondition
from engine.api import Admitted, ErrorCode, RawPrompt, RequestError, Task
from tests.chat.api.conftest import MODEL, Scripted, completed
from tests.people import member

pytestmark = pytest.mark.django_db(transaction=True)

READ = [Admitted(7, 0, 1, (5, 6), "<user>hi", None, 2048), completed(0, 0, 0)]
HI = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def live() -> dict[str, ModelCondition]:
    return {MODEL.name: ModelCondition("ready")}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, live: dict[str, ModelCondition]) -> Scripted:
    service = Scripted(script=list(READ))

    async def resolve(*, name: str | None, caller: Any = None) -> Any:
        return MODEL if name in (None, "", MODEL.name) else None

    async def conditions() -> dict[str, ModelCondition]:
        return live

    async def refresh() -> None:
        """Nothing is cached here."""

    monkeypatch.setattr(named_models, "model_resolve_async", resolve)
    monkeypatch.setattr(offered, "models_live", conditions)
    monkeypatch.setattr(api_views, "configuration_refresh", refresh)
    monkeypatch.setattr(pipeline, "completion_start", service.start)
    monkeypatch.setattr(pipeline, "completion_refuse", service.refuse)
    monkeypatch.setattr(pipeline, "limits_look", service.look)
    monkeypatch.setattr(pipeline, "request_rejected_record", lambda **record: service.rejected.append(record))
    return service


async def post(path: str, body: Any, user: Any = None) -> tuple[int, Any]:
    client = AsyncClient()
    if user is not None:
        await client.aforce_login(user)
    response = await client.post(f"/playground/api/{path}", body, content_type="application/json")
    return response.status_code, response.json()


@pytest.fixture
def ada(django_user_model: Any) -> Any:
    return member("ada")


@pytest.mark.parametrize(("fields", "max_tokens"), [({}, None), ({"max_tokens": 5000}, 5000)])
async def test_a_prompt_is_rendered_and_counted(
    service: Scripted, ada: Any, fields: dict[str, Any], max_tokens: int | None
) -> None:
    status, answer = await post("render", {"request": HI | fields}, ada)
    assert (status, answer) == (
        200,
        {
            "model": MODEL.name,
            "prompt": "<user>hi",
            "num_tokens": 7,
            "context": 2048,
            "max_tokens": max_tokens,
            "num_messages": 1,
        },
    )
    (request,), (trace,) = service.requests, service.traces
    assert (request.task, request.prompt.returns_text) == (Task.READ, True)
    assert (trace.dialect, trace.user_label) == ("playground", "ada")
    assert service.readers[0].num_left == 1


async def test_a_text_is_counted_as_it_is(service: Scripted, ada: Any) -> None:
    assert await post("count", {"model": MODEL.name, "text": "so"}, ada) == (200, {"num_tokens": 7})
    (request,) = service.requests
    assert (request.task, request.raw) == (Task.READ, RawPrompt(text="so", param="text"))
    assert not request.prompt.add_special_tokens


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (ModelCondition(), "is unloaded"),
        (ModelCondition("loading", phase="weights", fraction=0.5), "is loading, 50%"),
        (ModelCondition("failed"), "is failed"),
    ],
)
async def test_no_model_is_loaded_to_read_a_prompt(
    service: Scripted, ada: Any, live: dict[str, ModelCondition], condition: ModelCondition, words: str
) -> None:
    live[MODEL.name] = condition
    for path, body in (("render", {"request": HI}), ("count", {"text": "so"})):
        status, answer = await post(path, body, ada)
        assert (status, answer["error"]["code"], answer["error"]["param"]) == (409, "model_not_loaded", "model")
        assert words in answer["error"]["message"]
    assert service.requests == []


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("render", {}, "request"),
        ("render", {"request": {}}, "messages"),
        ("render", {"request": HI | {"temperature": 3}}, "temperature"),
        ("render", {"request": HI | {"temprature": 1}}, "temprature"),
        ("render", {"request": HI, "model": "x"}, "model"),
        ("count", {}, "text"),
        ("count", {"text": 5}, "text"),
        ("count", {"text": "so", "model": "absent"}, "model"),
    ],
)
async def test_a_bad_request_is_refused_by_its_field(
    service: Scripted, ada: Any, path: str, body: Any, param: str
) -> None:
    status, answer = await post(path, body, ada)
    assert (status in (400, 404), answer["error"]["param"]) == (True, param)
    assert service.requests == []


async def test_a_prompt_that_is_too_long_says_so(service: Scripted, ada: Any) -> None:
    service.script = [RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "messages are too long", "messages")]
    status, answer = await post("render", {"request": HI}, ada)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert service.readers[0].num_left == 1


async def test_prompts_are_read_for_users_alone(service: Scripted) -> None:
    assert (await post("render", {"request": HI}))[0] == 401
    assert service.requests == []
