"""A served model of speech, over HTTP: OpenAI's client unchanged, whole and streamed."""

from __future__ import annotations

import io
import json

import openai
import pytest

from tests.engine.speech_folders import RATE, tones, wav, write_whisper
from tests.engine.test_transcribers import reference
from tests.served import ServedLightcone

pytestmark = pytest.mark.live

SECONDS = 35


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whisper")
    return folder, write_whisper(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory, whisper):
    served = ServedLightcone(tmp_path_factory.mktemp("speech"), model="tiny-whisper")
    served.environment = {
        "LIGHTCONE_MODEL": str(whisper[0]),
        "LIGHTCONE_MODEL_NAME": "tiny-whisper",
        "LIGHTCONE_NUM_THREADS": "1",
        "LIGHTCONE_MAX_TRANSCRIPTION_SECONDS": "60",
    }
    with served.running():
        yield served


@pytest.fixture
def client(server):
    with openai.OpenAI(api_key=server.api_key, base_url=server.api_url, max_retries=0) as made:
        yield made


def sent(samples, name="sound.wav"):
    return {"model": "tiny-whisper", "file": (name, io.BytesIO(wav(samples))), "language": "en"}


def test_openais_client_gets_the_segments_of_transformers(client, whisper):
    sound = tones(SECONDS, 1)
    wanted = reference(whisper[1], sound, language="en", task="transcribe")
    answer = client.audio.transcriptions.create(
        **sent(sound), response_format="verbose_json", timestamp_granularities=["segment", "word"]
    )
    assert [one.tokens for one in answer.segments] == [ids for _, _, ids in wanted]
    assert [one.start for one in answer.segments] == pytest.approx([start for start, _, _ in wanted], abs=0.002)
    assert (answer.duration, answer.language, answer.usage.seconds) == (SECONDS, "english", SECONDS)
    assert answer.words
    plain = client.audio.transcriptions.create(**sent(sound))
    assert plain.text == answer.text
    assert plain.usage.input_token_details.audio_tokens == 50 * SECONDS
    events = list(client.audio.transcriptions.create(**sent(sound), stream=True))
    assert [event.type for event in events[:-1]] == ["transcript.text.delta"] * len(wanted)
    assert events[-1].type == "transcript.text.done"
    assert "".join(event.delta for event in events[:-1]).strip() == events[-1].text == plain.text
    assert client.audio.transcriptions.create(**sent(sound), response_format="vtt").startswith("WEBVTT\n\n00:00:")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        english = client.audio.translations.create(model="tiny-whisper", file=("a.wav", wav(sound)))
    assert english.text != plain.text


def test_bad_sounds_and_other_routes_are_refused_in_a_sentence(client, server):
    with pytest.raises(openai.BadRequestError, match="at most 60 seconds") as raised:
        client.audio.transcriptions.create(**sent(tones(1).repeat(70)))
    assert raised.value.param == "file"
    with pytest.raises(openai.BadRequestError, match="audio"):
        client.audio.transcriptions.create(model="tiny-whisper", file=("a.mp3", b"no sound"))
    with pytest.raises(openai.BadRequestError, match="/v1/audio/transcriptions"):
        client.chat.completions.create(model="tiny-whisper", messages=[{"role": "user", "content": "hi"}])
    (model,) = json.loads(server.get("/v1/models")[2])["data"]
    assert (model["kind"], model["capabilities"]) == ("transcriber", ["transcription"])
    usage = client.audio.transcriptions.create(**sent(tones(2))).usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert len(tones(2)) == 2 * RATE
