"""Weighted aliases, fallbacks, deprecation and templates of models, as clients see them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chat.catalog import named_models
from engine.api import EngineUnavailable, ErrorCode
from tests.chat.api.conftest import HELLO, MODEL, Scripted, chat, post

SPARE = replace(MODEL, name="spare", aliases=(), is_default=False)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The entries by name, which the test changes."""
    entries = {MODEL.name: MODEL, "spare": SPARE}

    async def resolve(*, name, caller=None):
        return entries.get(name or MODEL.name)

    monkeypatch.setattr(named_models, "model_resolve_async", resolve)
    return entries


def fail_once(monkeypatch: pytest.MonkeyPatch, code: ErrorCode, away: str) -> None:
    start = Scripted.start

    async def refuse(self, *, request, **given):
        if request.model == away:
            self.requests.append(request)
            raise EngineUnavailable(code, f"{away} is away.")
        return await start(self, request=request, **given)

    monkeypatch.setattr(Scripted, "start", refuse)


@pytest.mark.parametrize("code", [ErrorCode.MODEL_UNLOADED, ErrorCode.MODEL_LOAD_FAILED, ErrorCode.OVERLOADED])
async def test_a_model_that_is_away_is_replaced_by_its_fallback_and_the_head_says_so(
    api, scripted, names, monkeypatch, code
) -> None:
    names[MODEL.name] = replace(MODEL, fallback="spare")
    fail_once(monkeypatch, code, MODEL.name)
    monkeypatch.setattr("chat.api.answering.pipeline.completion_start", scripted.start)
    scripted.script = list(HELLO)
    response = await post(api)
    assert response.status_code == 200
    assert response.json()["model"] == "spare"
    assert response.headers["x-lightcone-model"] == "spare"
    assert response.headers["x-lightcone-fallback"] == f"{MODEL.name} {code.value}"


async def test_without_a_fallback_or_for_faults_of_the_request_nothing_is_replaced(
    api, scripted, names, monkeypatch
) -> None:
    fail_once(monkeypatch, ErrorCode.MODEL_UNLOADED, MODEL.name)
    monkeypatch.setattr("chat.api.answering.pipeline.completion_start", scripted.start)
    assert (await post(api)).status_code == 503
    names[MODEL.name] = replace(MODEL, fallback="spare")
    assert (await post(api, temperature=9)).status_code == 400
    assert {request.model for request in scripted.requests} == {MODEL.name}


async def test_a_fallback_that_does_not_take_the_media_leaves_the_answer_to_the_model_that_is_away(
    api, scripted, names, monkeypatch
) -> None:
    names[MODEL.name] = replace(MODEL, fallback="spare", modalities=("image",))
    fail_once(monkeypatch, ErrorCode.OVERLOADED, MODEL.name)
    monkeypatch.setattr("chat.api.answering.pipeline.completion_start", scripted.start)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    response = await post(api, messages=[{"role": "user", "content": [image]}])
    assert response.status_code == 503
    assert response.json()["error"]["message"] == f"{MODEL.name} is away."


@pytest.mark.parametrize("name", ["mm_processor_kwargs", "media_io_kwargs"])
async def test_a_fallback_that_takes_no_media_options_leaves_the_answer_to_the_model_that_is_away(
    api, scripted, names, monkeypatch, name
) -> None:
    names[MODEL.name] = replace(MODEL, fallback="spare", modalities=("image",))
    fail_once(monkeypatch, ErrorCode.OVERLOADED, MODEL.name)
    monkeypatch.setattr("chat.api.answering.pipeline.completion_start", scripted.start)
    monkeypatch.setattr("chat.access.keys.Caller.has_right", lambda *_: True)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    options = {"mm_processor_kwargs": {"max_pixels": 9000}, "media_io_kwargs": {"image": {}}}
    response = await post(api, messages=[{"role": "user", "content": [image]}], **{name: options[name]})
    assert response.status_code == 503
    assert response.json()["error"]["message"] == f"{MODEL.name} is away."


async def test_an_answer_by_a_weighted_alias_names_its_model(api, scripted, names) -> None:
    names["canary"] = replace(SPARE, alias="canary")
    scripted.script = list(HELLO)
    response = await post(api, model="canary")
    assert (response.headers["x-lightcone-model"], "x-lightcone-fallback" in response.headers) == ("spare", False)


async def test_a_plain_answer_has_no_lines_about_its_model(api, scripted, names) -> None:
    scripted.script = list(HELLO)
    response = await post(api)
    assert not {"x-lightcone-model", "x-lightcone-fallback", "deprecation"} & set(response.headers)


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_deprecated_model_says_so(api, scripted, names, is_stream) -> None:
    names[MODEL.name] = replace(MODEL, deprecated_at=1_800_000_000)
    scripted.script = list(HELLO)
    assert (await post(api, stream=is_stream)).headers["deprecation"] == "@1800000000"


async def test_the_models_template_is_used_without_a_right_and_a_request_needs_one(api, scripted, names) -> None:
    names[MODEL.name] = replace(MODEL, chat_template="{{ messages }}")
    scripted.script = list(HELLO)
    assert (await post(api)).status_code == 200
    assert scripted.requests[0].prompt.chat_template == "{{ messages }}"
    refused = await api.post("/v1/chat/completions", json=chat(chat_template="x"))
    assert refused.json()["error"]["code"] == "untrusted_chat_template"
