"""Sound in messages of a model with a transcriber: it becomes text, by runs of its own, and the usage says so."""

import base64
import dataclasses
import json

import pytest

from chat.api.answering import hearing, images, pipeline
from chat.api.chat_format.stored import RESUMABLE_HEADER, kept_read
from chat.catalog import named_models
from chat.media.data_urls import Media, MediaBudget
from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    ErrorCode,
    FinishReason,
    Outcome,
    RequestError,
    SegmentSpoken,
    Task,
    Timings,
    Transcribed,
    Usage,
)
from engine.api.media import MediaLimits
from tests.chat.api.conftest import MODEL, ROUTE

SOUND = base64.b64encode(b"RIFF sound").decode()
READER = dataclasses.replace(MODEL, transcriber="whisper")
WHISPER = dataclasses.replace(MODEL, name="whisper", is_default=False, aliases=())
HEARD = [
    Admitted(60, 0, 1),
    SegmentSpoken(0.0, 1.0, " Hello", (1,)),
    SegmentSpoken(1.0, 1.2, " there.", (2, 3)),
    Transcribed("en", 1.2),
    Completed(Outcome.FINISHED, Usage(60, completion_tokens=3, audio_tokens=60, audio_seconds=1.2), Timings(0.0)),
]
ANSWER = [
    Admitted(9, 5, 1),
    Delta(0, (1,), "Hi"),
    ChoiceFinished(0, FinishReason.STOP),
    Completed(Outcome.FINISHED, Usage(9, completion_tokens=1), Timings(0.0)),
]
AUDIO = {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}}
BY_URL = {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{SOUND}"}}


@pytest.fixture
def hears(scripted, monkeypatch):
    """Let the model have a transcriber, whose runs say HEARD."""
    start = scripted.start

    async def started(*, request, **others):
        scripted.script = list(HEARD if request.task is Task.TRANSCRIBE else ANSWER)
        return await start(request=request, **others)

    async def resolved(*, name=None, caller=None):
        return WHISPER if name == "whisper" else READER

    monkeypatch.setattr("chat.api.answering.pipeline.completion_start", started)
    monkeypatch.setattr(named_models, "model_resolve_async", resolved)
    return scripted


async def ask(api, *parts, **fields):
    content = [{"type": "text", "text": "What is said?"}, *parts]
    return await api.post(ROUTE, json={"messages": [{"role": "user", "content": content}], **fields})


@pytest.mark.parametrize("part", [AUDIO, BY_URL])
async def test_a_sound_becomes_a_quotation_and_the_usage_says_so(api, hears, part):
    response = await ask(api, part)
    assert response.status_code == 200, response.text
    usage = response.json()["usage"]
    assert usage["transcription"] == {"model": "whisper", "seconds": 1.2, "input_tokens": 60, "output_tokens": 3}
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (9, 1)
    heard, asked = hears.requests
    assert (heard.task, heard.model, heard.speech.data) == (Task.TRANSCRIBE, "whisper", SOUND)
    (message,) = asked.messages
    assert message["content"][1]["text"] == 'Sound 1, written down by whisper:\n"Hello there."'
    assert hears.further == [True, False], "the request counts once"
    assert [reader.num_left for reader in hears.readers] == [1, 1]


@pytest.mark.parametrize("kind", ["input_audio", "audio_url"])
async def test_a_sound_that_is_named_alone_is_refused_with_the_reason(api, hears, kind):
    error = (await ask(api, {"type": kind, kind: None, "uuid": "mine"})).json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", "messages.0.content.1.uuid")
    expected = (
        "has sound written down by whisper, which knows no names; send the sound itself, or use a model that hears"
    )
    assert error["message"].endswith(expected)
    assert hears.requests == []


async def test_a_stream_says_it_in_its_last_chunk(api, hears):
    response = await ask(api, AUDIO, AUDIO, stream=True, stream_options={"include_usage": True})
    frames = [frame.removeprefix("data: ") for frame in response.text.strip().split("\n\n")]
    assert json.loads(frames[-2])["usage"]["transcription"]["seconds"] == 2.4


async def test_an_answer_that_is_read_again_says_it_too(api, hears):
    body = {"messages": [{"role": "user", "content": [AUDIO]}], "stream": True}
    assert (await api.post(ROUTE, json=body, headers={RESUMABLE_HEADER: "true"})).status_code == 200
    head, _ = kept_read(hears.detach_policies[-1].resume_context)
    assert head.transcription == {"model": "whisper", "seconds": 1.2, "input_tokens": 60, "output_tokens": 3}


async def test_a_model_that_hears_by_itself_gets_the_sound_in_spite_of_its_transcriber(api, hears, monkeypatch):
    both = dataclasses.replace(READER, modalities=("audio",))

    async def resolved(*, name=None, caller=None):
        return both

    monkeypatch.setattr(named_models, "model_resolve_async", resolved)
    response = await ask(api, AUDIO)
    assert response.status_code == 200, response.text
    (request,) = hears.requests
    sent = {"type": "audio", "data": SOUND, "param": "messages.0.content.1.input_audio"}
    assert request.messages[0]["content"][1] == sent
    assert "transcription" not in response.json()["usage"]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "", "input_audio": SOUND}, "messages.0.content.1"),
        ({"image_url": "data:image/png;base64,AAAA", "input_audio": SOUND}, "messages.0.content.1.image_url"),
    ],
    ids=str,
)
async def test_a_part_is_sound_where_a_model_that_hears_would_take_it_for_such(api, hears, part, param):
    response = await ask(api, part)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert not hears.requests, "nothing is written down for a request that is refused"


async def test_without_a_transcriber_sound_is_refused(api, scripted):
    response = await ask(api, AUDIO)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages.0.content.1.input_audio"
    assert not scripted.requests


async def test_who_may_not_use_the_transcriber_is_told(api, hears, monkeypatch):
    async def nobodys(model, caller):
        return None

    monkeypatch.setattr(hearing, "model_transcriber", nobodys)
    error = (await ask(api, AUDIO)).json()["error"]
    assert error["param"] == "messages.0.content.1.input_audio"
    assert "whisper" in error["message"]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "input_audio", "input_audio": {}}, "messages.0.content.1.input_audio"),
        ({"type": "input_audio", "input_audio": 7}, "messages.0.content.1.input_audio"),
        ({"type": "audio_url", "audio_url": {"url": "file:///etc/passwd"}}, "messages.0.content.1.audio_url.url"),
    ],
)
async def test_a_bad_part_is_refused_by_its_path(api, hears, part, param):
    error = (await ask(api, part)).json()["error"]
    assert error["param"] == param
    assert not hears.requests


async def test_too_many_sounds_are_refused(api, hears):
    error = (await ask(api, *[AUDIO] * 9)).json()["error"]
    assert (error["param"], "limit of 8" in error["message"]) == ("messages.0.content.9.input_audio", True)


async def seeing(model):
    return ("image",)


class Fetcher:
    """Fetches ten bytes of sound, from anywhere."""

    limits = MediaLimits()

    def __init__(self, num_bytes=15):
        self._num_bytes = num_bytes

    def budget(self):
        return MediaBudget(MediaLimits(max_media_bytes=10, max_media_request_bytes=self._num_bytes))

    async def fetch(self, url, request, budget):
        budget.take(10, request.param)
        return Media(request.kind, (b"RIFF sound",))


async def test_all_sounds_of_a_request_count_for_the_bytes_that_it_may_fetch(api, hears, monkeypatch):
    for module in (hearing, pipeline):
        monkeypatch.setattr(module, "media_fetcher", Fetcher)
    sounds = [{"type": "audio_url", "audio_url": {"url": f"https://a/{number}.wav"}} for number in range(2)]
    assert (await ask(api, sounds[0])).status_code == 200
    error = (await ask(api, *sounds)).json()["error"]
    assert (error["param"], "all media of a request" in error["message"]) == (
        "messages.0.content.2.audio_url.url",
        True,
    )


async def test_sounds_and_images_of_a_request_have_one_budget(api, hears, monkeypatch):
    for module in (hearing, images, pipeline):
        monkeypatch.setattr(module, "media_fetcher", lambda: Fetcher(16))
    sound = {"type": "audio_url", "audio_url": {"url": "https://a/1.wav"}}
    image = {"type": "image_url", "image_url": {"url": "https://a/1.png"}}
    monkeypatch.setattr(images, "modalities_live", seeing)
    for parts in ((sound, image), (AUDIO, image)):
        error = (await ask(api, *parts)).json()["error"]
        assert error["param"] == "messages.0.content.2.image_url.url"
        assert "all media of a request" in error["message"]
    assert (await ask(api, image)).status_code == 200


async def test_what_the_transcriber_refuses_is_refused_by_the_part(api, hears, monkeypatch):
    start = hears.start

    async def refusing(*, request, **others):
        hears.script = [RequestError(ErrorCode.INVALID_VALUE, "the audio has no sound", request.speech.param)]
        return await start(request=request, **others)

    monkeypatch.setattr("chat.api.answering.pipeline.completion_start", refusing)
    response = await ask(api, AUDIO)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages.0.content.1.input_audio")
