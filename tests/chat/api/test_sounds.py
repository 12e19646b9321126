"""Sounds for models that hear by themselves: forms, addresses, names, vectors in their place, and who refuses them."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from chat.api.answering import images
from chat.api.request.build import generation_request
from chat.api.request.messages import messages_walk
from chat.api.request.parsed import GenerationParams, ParsedRequest
from chat.catalog import named_models
from chat.catalog.services import ModelEntry
from chat.errors import ApiError
from chat.media.cache import MediaCache
from chat.media.named import NamedMedia
from engine.api.media import MediaKind
from tests.chat.api.test_image_embeds import caller
from tests.chat.api.test_remote_images import CountingFetcher, SomeCaller, user

HEARING = ModelEntry("hearing", "me", 0, modalities=("audio",))
READING = ModelEntry("reading", "me", 0)
WRITING = ModelEntry("with-transcriber", "me", 0, transcriber="whisper")
FORBIDDEN = ModelEntry("with-another", "me", 0, transcriber="of-others")
"""A model whose transcriber the caller may not use."""
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(40)
DATA = base64.b64encode(WAV).decode()
PLACE = "messages.0.content.0"


@pytest.fixture(autouse=True)
def served(monkeypatch, settings, tmp_path):
    """Four models without workers, at a server that takes vectors and fetches whatever is asked for."""
    settings.LIGHTCONE_EMBEDS = True

    async def models_live():
        return {}

    async def models_for_caller(*, caller):
        return [HEARING, READING, WRITING, FORBIDDEN]

    async def model_resolve(*, name, caller=None):
        return ModelEntry(name, "me", 0) if name == "whisper" else None

    monkeypatch.setattr(named_models, "models_live", models_live)
    monkeypatch.setattr(named_models, "models_for_caller_async", models_for_caller)
    monkeypatch.setattr(named_models, "model_resolve_async", model_resolve)
    fetcher, media = CountingFetcher(), NamedMedia(MediaCache(tmp_path, 1 << 20))
    monkeypatch.setattr(images, "media_fetcher", lambda: fetcher)
    monkeypatch.setattr(images, "named_media", lambda: media)
    return fetcher


async def walked(*parts, model=HEARING, who=None):
    messages = user(*parts)
    rules = await images.media_rules(messages, model, who or SomeCaller())
    (message,) = messages_walk(messages, model=model.name, max_parts=99, media=rules)
    return message["content"]


async def refused(*parts, **how):
    with pytest.raises(ApiError) as caught:
        await walked(*parts, **how)
    return caught.value


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}, "input_audio"),
        ({"input_audio": {"data": f"data:audio/wav;base64,{DATA}"}}, "input_audio"),
        ({"input_audio": DATA}, "input_audio"),
        ({"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{DATA}"}}, "audio_url"),
        ({"audio_url": f"data:audio/mpeg;base64,{DATA}"}, "audio_url"),
    ],
    ids=str,
)
async def test_a_sound_goes_to_the_worker_undecoded(part, kind):
    assert await walked(part) == [{"type": "audio", "data": DATA, "param": f"{PLACE}.{kind}"}]


async def test_an_address_is_fetched_as_sound(served):
    (part,) = await walked({"audio_url": "https://a/1"})
    assert base64.b64decode(part["data"]) == b"https://a/1"
    assert (served.asked, served.kinds) == ([("https://a/1", True, "1")], [MediaKind.AUDIO])
    error = await refused({"type": "audio_url", "audio_url": {"url": "https://a/bad"}})
    assert (error.code, error.param) == ("invalid_media", f"{PLACE}.audio_url.url")


@pytest.mark.parametrize(
    ("part", "param", "words"),
    [
        ({"type": "input_audio", "input_audio": {}}, "input_audio", "an object with data"),
        ({"type": "input_audio", "input_audio": 7}, "input_audio", "an object with data"),
        ({"type": "input_audio"}, "input_audio", "an object with data"),
        ({"audio_url": {"url": []}}, "audio_url", "an object with url"),
        ({"audio_url": "file:///etc/passwd"}, "audio_url.url", "data:audio/wav;base64,DATA"),
    ],
    ids=str,
)
async def test_other_forms_are_refused(part, param, words):
    error = await refused(part)
    assert error.param == f"{PLACE}.{param}"
    assert words in error.message


async def test_a_request_has_at_most_eight_sounds_of_a_bounded_size(settings):
    parts = [{"input_audio": DATA}, {"audio_url": f"data:audio/wav;base64,{DATA}"}]
    error = await refused(*parts * 5)
    assert (error.param, "limit of 8" in error.message) == ("messages.0.content.8.input_audio", True)
    settings.LIGHTCONE_MEDIA_LIMITS = replace(settings.LIGHTCONE_MEDIA_LIMITS, max_media_bytes=20)
    assert "at most 20 bytes" in (await refused(parts[0])).message


@pytest.mark.parametrize("kind", ["input_audio", "audio_url"])
async def test_a_sound_is_sent_once_and_named_later(kind):
    value = {"data": DATA} if kind == "input_audio" else {"url": f"data:audio/wav;base64,{DATA}"}
    await walked({"type": kind, kind: value, "uuid": "a"})
    assert await walked({"type": kind, "uuid": "a"}) == [{"type": "audio", "data": DATA, "param": f"{PLACE}.uuid"}]
    error = await refused({"type": kind, kind: None, "uuid": "b"})
    assert error.param == f"{PLACE}.uuid"
    assert "names no sound that is kept: 'b'" in error.message
    assert "string of 1 to 256" in (await refused({"type": kind, kind: value, "uuid": 5})).message


@pytest.mark.parametrize("kind", ["input_audio", "audio_url"])
async def test_a_model_that_reads_text_names_those_that_hear_and_fetches_nothing(kind, served):
    error = await refused({"type": kind, kind: "https://a/1"}, model=READING)
    assert (error.code, error.param) == ("unsupported_parameter", f"{PLACE}.{kind}")
    assert "reading is not a multimodal model" in error.message
    assert error.message.endswith("use a model that takes sound: hearing, with-transcriber")
    assert served.asked == []


async def test_those_that_know_the_names_of_sounds_are_named_for_one(served):
    error = await refused({"type": "input_audio", "uuid": "a"}, model=READING)
    assert error.message.endswith("use a model that takes sound: hearing")


async def test_other_media_are_refused_by_a_model_that_hears():
    error = await refused({"image_url": "https://a/1"})
    assert "hearing takes text and sound; send text, or choose another model" in error.message
    assert "hearing takes text and sound" in (await refused({"video_url": "https://a/1"})).message


@pytest.mark.parametrize(
    "part",
    [{"type": "audio_embeds", "audio_embeds": "AAAA"}, {"audio_embeds": {"audio_embeds": "AAAA"}}],
    ids=str,
)
async def test_vectors_go_to_the_worker_as_they_came(part):
    found = await walked(part, who=caller("embeds"))
    assert found == [{"type": "audio", "data": "AAAA", "is_vectors": True, "param": f"{PLACE}.audio_embeds"}]


async def test_vectors_need_a_string_the_right_and_a_model_that_hears_itself(settings):
    part = {"audio_embeds": "AAAA"}
    assert (await refused({"audio_embeds": 5}, who=caller("embeds"))).code == "invalid_type"
    assert "'Send vectors as inputs'" in (await refused(part, who=caller())).message
    error = await refused(part, who=caller("embeds"), model=WRITING)
    assert error.message.endswith("use a model that takes sound: hearing")
    settings.LIGHTCONE_EMBEDS = False
    assert "LIGHTCONE_EMBEDS" in (await refused(part, who=caller("embeds"))).message


async def test_options_of_media_are_left_to_the_worker_of_a_model_that_hears():
    wanted = GenerationParams(media_options={"media_io_kwargs": {"audio": {"rate": 5}}})
    parsed = ParsedRequest(messages=(user({"input_audio": DATA})), generation=wanted)
    rules = await images.media_rules(parsed.messages, HEARING, SomeCaller())
    made = generation_request(
        parsed,
        model="hearing",
        sampling_defaults={},
        caller=caller("embeds"),
        priority=0,
        arrived_at=0.0,
        media=rules,
    )
    assert json.loads(json.dumps(made.prompt.media_options)) == wanted.media_options
