"""The bytes of sounds that a model which writes down speech holds together."""

import base64

import pytest

from engine.api.errors import EngineUnavailable
from engine.api.media import MediaLimits
from engine.api.request import Speech
from engine.inputs import sound
from engine.model_kind import WHISPER, SpeechPurpose
from engine.slow_work import SlowWork
from tests.engine.pool_in_process import PoolInProcess
from tests.engine.speech_folders import tones, wav

SPEECH = Speech(base64.b64encode(wav(tones(1.0))).decode())
NUM_BYTES = 32_000


@pytest.fixture
def reader(monkeypatch):
    monkeypatch.setattr("engine.inputs.media.decoder.KillablePool", PoolInProcess)
    reader = sound.SoundReader(None, SpeechPurpose(WHISPER, 50.0, ("en",)), SlowWork(), MediaLimits())
    yield reader
    reader.close()


def test_sounds_are_held_up_to_a_bound_until_they_end(reader, monkeypatch):
    monkeypatch.setattr(sound, "MAX_HELD_BYTES", 2 * NUM_BYTES)
    held = [reader.read(SPEECH, "key", "one") for _ in range(2)]
    with pytest.raises(EngineUnavailable, match="as much sound waiting as it may hold"):
        reader.read(SPEECH, "key", "one")
    held.pop()
    assert reader.read(SPEECH, "key", "one").seconds == 1.0


def test_a_sound_may_end_while_another_is_counted(reader, monkeypatch):
    """The end waited for the count, and the count for the end, where garbage was collected in the midst of it."""
    first = reader.read(SPEECH, "key", "one")

    class Bound(int):
        def __lt__(self, other):
            nonlocal first
            first = None
            return int(self) < other

    monkeypatch.setattr(sound, "MAX_HELD_BYTES", Bound(2 * NUM_BYTES))
    held = [reader.read(SPEECH, "key", "one") for _ in range(2)]
    assert len(held) == 2
