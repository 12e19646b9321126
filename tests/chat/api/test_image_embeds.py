"""Vectors in place of images: who may send them, to which models, and in which form."""

from __future__ import annotations

import pytest

from chat.access.keys import Caller
from chat.api.answering import images
from chat.api.request.messages import messages_walk
from chat.catalog import named_models
from chat.catalog.services import ModelEntry
from chat.errors import ApiError

SEEING = ModelEntry("seeing", "me", 0, modalities=("image",))
READING = ModelEntry("reading", "me", 0)
PLACE = "messages.0.content.0.image_embeds"


def caller(*rights):
    return Caller(1, "testing0001", 1, 1, "1", frozenset({"inference", *rights}))


@pytest.fixture(autouse=True)
def served(monkeypatch, settings):
    """Two models without workers, at a server that takes vectors."""
    settings.LIGHTCONE_EMBEDS = True

    async def models_live():
        return {}

    async def models_for_caller(*, caller):
        return [SEEING, READING]

    monkeypatch.setattr(named_models, "models_live", models_live)
    monkeypatch.setattr(named_models, "models_for_caller_async", models_for_caller)


async def walked(*parts, model=SEEING, who=None):
    messages = [{"role": "user", "content": [*parts]}]
    rules = await images.media_rules(messages, model, who or caller("embeds"))
    return messages_walk(messages, model=model.name, max_parts=99, media=rules)


async def refused(*parts, **how):
    with pytest.raises(ApiError) as caught:
        await walked(*parts, **how)
    return caught.value


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_embeds", "image_embeds": "AAAA"},
        {"image_embeds": "AAAA"},
        {"type": "image_embeds", "image_embeds": {"image_embeds": "AAAA"}},
    ],
    ids=str,
)
async def test_vectors_go_to_the_worker_as_they_came(part):
    (message,) = await walked(part)
    assert message["content"] == [{"type": "image", "data": "AAAA", "is_vectors": True, "param": PLACE}]


@pytest.mark.parametrize("value", [None, 5, [], {}, {"a": "b"}], ids=str)
async def test_other_forms_are_refused(value):
    error = await refused({"type": "image_embeds", "image_embeds": value})
    assert (error.code, error.param) == ("invalid_type", PLACE)
    assert "base64 of a .npy or safetensors file" in error.message


async def test_the_server_and_the_key_must_allow_them(settings):
    part = {"type": "image_embeds", "image_embeds": "AAAA"}
    error = await refused(part, who=caller())
    assert (error.code, error.param) == ("unsupported_parameter", PLACE)
    assert "'Send vectors as inputs'" in error.message
    settings.LIGHTCONE_EMBEDS = False
    assert "LIGHTCONE_EMBEDS" in (await refused(part)).message


async def test_a_model_that_reads_text_names_those_that_see():
    error = await refused({"image_embeds": "AAAA"}, model=READING)
    assert "use a model that takes images: seeing" in error.message


async def test_they_count_as_images():
    assert "limit of 8" in (await refused(*[{"image_embeds": "AAAA"}] * 9)).message
