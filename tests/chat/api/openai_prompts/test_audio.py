"""Transcriptions and translations: the form that is read, and the shapes of what was said."""

import base64
import json

import httpx
import openai
import pytest

from engine.api import (
    Admitted,
    Completed,
    ErrorCode,
    Outcome,
    RequestError,
    SegmentSpoken,
    Speech,
    SpokenWord,
    Task,
    Timings,
    TokenLogprob,
    Transcribed,
    Usage,
)
from tests.chat.api.conftest import KEY
from tests.chat.api.openapi.test_document import validator

SOUND = b"RIFF some sound"
LOGPROBS = tuple(TokenLogprob(number, -0.5, text, text.encode()) for number, text in enumerate((" The", " sea")))
SEGMENTS = [
    SegmentSpoken(
        0.0,
        1.25,
        " The sea",
        (7, 8),
        -0.5,
        1.1,
        0.02,
        0.0,
        0,
        (SpokenWord("The", 0.1, 0.5), SpokenWord("sea", 0.5, 1.2)),
        LOGPROBS,
    ),
    SegmentSpoken(3661.5, 3662.0, " is --> deep.", (9,), -0.25, 1.2, 0.01, 0.2, 366_000),
]
USAGE = Usage(prompt_tokens=62, completion_tokens=3, audio_tokens=60, audio_seconds=1.2)


@pytest.fixture
def said(scripted):
    end = Completed(Outcome.FINISHED, USAGE, Timings(0.0))
    scripted.script = [Admitted(62, 0, 1), *SEGMENTS, Transcribed("en", 3662.4), end]
    return scripted


async def ask(api, path="/v1/audio/transcriptions", **fields):
    return await api.post(path, files={"file": ("a.wav", SOUND, "audio/wav")}, data=fields)


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/audio/transcriptions/"])
async def test_json_has_the_text_and_counts_tokens(api, said, components, path):
    response = await ask(api, path, model="org/tiny", language="en", prompt="Sea.", temperature="0.5", user="u")
    assert response.status_code == 200, response.text
    body = response.json()
    assert body == {
        "text": "The sea is --> deep.",
        "usage": {
            "type": "tokens",
            "input_tokens": 62,
            "input_token_details": {"audio_tokens": 60, "text_tokens": 2},
            "output_tokens": 3,
            "total_tokens": 65,
        },
    }
    validator(components, "Transcript").validate(body)
    (request,) = said.requests
    assert request.task is Task.TRANSCRIBE
    data = base64.b64encode(SOUND).decode()
    assert request.speech == Speech(data, language="en", prompt="Sea.", temperature=0.5)
    assert said.traces[0].user_label == "u"
    assert said.readers[0].num_left == 1


@pytest.mark.parametrize(("written", "read"), [("1e-05", 1e-5), ("5E-1", 0.5), (".5e+0", 0.5), ("0e0", 0.0)])
async def test_small_temperatures_may_have_an_exponent(api, said, written, read):
    """Clients of Python write 0.00001 so."""
    response = await ask(api, temperature=written)
    assert response.status_code == 200, response.text
    assert said.requests[0].speech.temperature == read


async def test_verbose_json_has_segments_and_words_as_asked(api, said, components):
    plain = (await ask(api, response_format="verbose_json")).json()
    assert (plain["task"], plain["language"], plain["duration"]) == ("transcribe", "english", 3662.4)
    assert plain["usage"] == {"type": "duration", "seconds": 3663}
    assert plain["segments"][0] == {
        "id": 0,
        "seek": 0,
        "start": 0.0,
        "end": 1.25,
        "text": " The sea",
        "tokens": [7, 8],
        "temperature": 0.0,
        "avg_logprob": -0.5,
        "compression_ratio": 1.1,
        "no_speech_prob": 0.02,
    }
    assert "words" not in plain
    both = {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]}
    full = (await ask(api, **both)).json()
    assert full["words"] == [
        {"word": "The", "start": 0.1, "end": 0.5},
        {"word": "sea", "start": 0.5, "end": 1.2},
    ]
    assert full["segments"] == plain["segments"]
    assert [request.speech.wants_words for request in said.requests] == [False, True]
    validator(components, "Transcript").validate(full)


@pytest.mark.parametrize(
    ("form", "kind", "text"),
    [
        ("text", "text/plain; charset=utf-8", "The sea is --> deep.\n"),
        (
            "srt",
            "text/plain; charset=utf-8",
            "1\n00:00:00,000 --> 00:00:01,250\nThe sea\n\n2\n01:01:01,500 --> 01:01:02,000\nis -> deep.\n\n",
        ),
        (
            "vtt",
            "text/vtt; charset=utf-8",
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nThe sea\n\n01:01:01.500 --> 01:01:02.000\nis -> deep.\n\n",
        ),
    ],
)
async def test_other_formats_are_text(api, said, form, kind, text):
    response = await ask(api, response_format=form)
    assert response.status_code == 200
    assert response.headers["content-type"] == kind
    assert response.text == text


async def test_a_translation_asks_for_english(api, said):
    body = (await ask(api, "/v1/audio/translations", response_format="verbose_json")).json()
    assert body["task"] == "translate"
    assert said.requests[0].speech.translates


async def test_a_stream_has_a_delta_for_each_segment_and_then_the_whole(api, said, components):
    response = await ask(api, stream="true", **{"include[]": "logprobs"})
    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, done = response.text.strip().split("\n\n")
    assert done == "data: [DONE]"
    events = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    assert [event["type"] for event in events] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
    assert [event.get("delta") for event in events] == ["The sea", " is --> deep.", None]
    assert events[-1]["text"] == "The sea is --> deep."
    assert events[-1]["usage"]["total_tokens"] == 65
    assert events[0]["logprobs"][1] == {"token": " sea", "logprob": -0.5, "bytes": list(b" sea")}
    assert len(events[-1]["logprobs"]) == 2
    for event in events:
        validator(components, "TranscriptEvent").validate(event)


@pytest.mark.parametrize(
    ("fields", "param", "said_text"),
    [
        ({"response_format": "xml"}, "response_format", "must be one of json"),
        ({"response_format": "diarized_json"}, "response_format", "must be one of json"),
        ({"temperature": "1.5"}, "temperature", "at most 1"),
        ({"temperature": "hot"}, "temperature", "must be a number"),
        ({"temperature": "1e5"}, "temperature", "at most 1"),
        ({"temperature": "1e9999"}, "temperature", "finite"),
        ({"temperature": "1e"}, "temperature", "must be a number"),
        ({"language": "x" * 65}, "language", "at most 64"),
        ({"prompt": "x" * 8193}, "prompt", "at most 8192"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities[]", "verbose_json alone"),
        (
            {"timestamp_granularities[]": "line", "response_format": "verbose_json"},
            "timestamp_granularities.0",
            "one of word, segment",
        ),
        ({"include[]": "logprobs", "response_format": "text"}, "include[]", "json alone"),
        ({"include[]": "tokens"}, "include.0", "one of logprobs"),
        ({"stream": "true", "response_format": "srt"}, "stream", "json or text"),
        ({"stream": "perhaps"}, "stream", "true or false"),
        ({"chunking_strategy": "never"}, "chunking_strategy", "auto"),
        ({"chunking_strategy[type]": "server_vad"}, "chunking_strategy", "must be auto"),
        ({"known_speaker_names[]": "Ann"}, "known_speaker_names", "not served"),
        ({"model": ["a", "b"]}, "model", "2 times"),
    ],
)
async def test_a_bad_field_is_refused_by_its_name(api, said, fields, param, said_text):
    response = await ask(api, **fields)
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert (error["param"], said_text in error["message"]) == (param, True), error
    assert not said.requests


@pytest.mark.parametrize(
    ("files", "data", "said_text"),
    [
        ({"sound": ("a.wav", SOUND)}, {}, "came as the part 'sound'"),
        ([("file", ("a.wav", SOUND)), ("file", ("b.wav", SOUND))], {}, "2 files"),
        ({"file": ("a.wav", b"")}, {}, "must not be empty"),
        ({"other": (None, "x")}, {"file": "text"}, "must be a file"),
        ({"other": (None, "x")}, {}, "is required"),
    ],
)
async def test_a_form_without_one_file_is_refused(api, said, files, data, said_text):
    response = await api.post("/v1/audio/transcriptions", files=files, data=data)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "file"), error
    assert said_text in error["message"]


async def test_a_body_that_is_no_form_is_refused(api, said):
    response = await api.post("/v1/audio/transcriptions", json={"file": "x"})
    assert response.status_code == 415 or response.json()["error"]["code"] == "invalid_content_type"
    cut = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nabc'
    head = {"content-type": "multipart/form-data; boundary=b"}
    broken = await api.post("/v1/audio/transcriptions", content=cut, headers=head)
    assert broken.status_code == 400


async def test_a_refusal_of_the_engine_names_the_field(api, scripted):
    message = "the audio cannot be decoded; save it anew and send it again"
    scripted.script = [RequestError(ErrorCode.INVALID_VALUE, message, "file")]
    response = await ask(api)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "file")


async def test_openais_client_reads_all_of_it(api, said):
    http = httpx.AsyncClient(transport=api._transport)
    client = openai.AsyncOpenAI(api_key=KEY, base_url="http://testserver/v1", http_client=http, max_retries=0)
    sent = {"model": "org/tiny", "file": ("a.wav", SOUND)}
    plain = await client.audio.transcriptions.create(**sent, include=["logprobs"])
    assert (plain.text, plain.usage.type, plain.logprobs[0].token) == ("The sea is --> deep.", "tokens", " The")
    full = await client.audio.transcriptions.create(
        **sent, response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    assert (full.language, full.words[1].word, full.segments[1].start) == ("english", "sea", 3661.5)
    assert (await client.audio.transcriptions.create(**sent, response_format="srt")).startswith("1\n00:00:00,000")
    streamed = [event async for event in await client.audio.transcriptions.create(**sent, stream=True)]
    assert [event.type for event in streamed] == ["transcript.text.delta"] * 2 + ["transcript.text.done"]
    with pytest.warns(DeprecationWarning, match="deprecated"):  # of the client, which would rather have another model
        english = await client.audio.translations.create(**sent)
    assert english.text == "The sea is --> deep."
