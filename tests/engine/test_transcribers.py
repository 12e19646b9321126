"""Models of speech through `submit()`: their tokens are those of transformers, alone, in a crowd and after an abort."""

import base64
import dataclasses
import inspect
import json
import os
import queue
import signal
import weakref

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.api import (
    Admitted,
    Completed,
    ErrorCode,
    GenerationRequest,
    ModelLoadError,
    Outcome,
    Rejected,
    SegmentSpoken,
    Speech,
    Task,
    Transcribed,
)
from engine.api.media import MediaLimits
from engine.config import EngineConfig
from engine.core.memory_need import memory_need
from engine.core.model_description import describe
from engine.engine import Engine
from engine.loading.inspection import describe_model
from engine.messages import SpeechOptions, SpokenSegment
from engine.models.speech.alignment import cheapest_way
from engine.models.speech.log_mel import LogMel
from engine.models.speech.model import chosen_token
from engine.models.speech.moonshine import windows
from engine.models.speech.registry import load_speech_model
from engine.requests.prepare import Resume
from engine.requests.runs.transcribing import spoken_words
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.speech_folders import RATE, tones, wav, write_moonshine, write_whisper

pytestmark = pytest.mark.slow


def speech(samples, **options):
    return Speech(base64.b64encode(wav(samples)).decode(), **options)


def transcribe(engine, *asked):
    """Return the events of sounds that are submitted together."""
    for number, one in enumerate(asked):
        engine.submit(str(number), task=Task.TRANSCRIBE, speech=one, messages=())
    events = engine.events_to_end(*map(str, range(len(asked))))
    return [[event.payload for event in events[str(number)]] for number in range(len(asked))]


def spoken(payloads):
    assert isinstance(payloads[0], Admitted)
    assert isinstance(payloads[-1], Completed)
    assert payloads[-1].outcome is Outcome.FINISHED
    return [payload for payload in payloads if isinstance(payload, SegmentSpoken)]


def reference(model, samples, **options):
    """Return the tokens of text and the times of the segments that transformers finds."""
    extractor = transformers.WhisperFeatureExtractor()
    inputs = extractor(
        samples.astype(np.float32) / 2**15,
        sampling_rate=RATE,
        truncation=False,
        padding="longest",
        return_attention_mask=True,
        return_tensors="pt",
    )
    made = model.generate(
        inputs.input_features,
        attention_mask=inputs.attention_mask,
        return_timestamps=True,
        return_segments=True,
        temperature=0.0,
        **options,
    )
    first = model.generation_config.no_timestamps_token_id
    segments = [
        (float(one["start"]), float(one["end"]), [t for t in one["tokens"].tolist() if t < first])
        for one in made["segments"][0]
    ]
    return [one for one in segments if one[2]]


def found(payloads):
    return [(one.start_s, one.end_s, list(one.token_ids)) for one in spoken(payloads)]


def same(ours, theirs, seconds):
    assert [ids for _, _, ids in ours] == [ids for _, _, ids in theirs]
    for (start, end, _), (their_start, their_end, _) in zip(ours, theirs, strict=True):
        assert start == pytest.approx(their_start, abs=0.002)
        assert end == pytest.approx(min(their_end, max(seconds, their_start)), abs=0.002)


@pytest.mark.parametrize("seconds", [30, 47.3])
def test_whisper_writes_what_transformers_does_alone_and_in_a_crowd(tmp_path, make_real_engine, seconds):
    model = write_whisper(tmp_path)
    sounds = [tones(seconds, seed) for seed in range(3)]
    wanted = [reference(model, sound, language="de", task="transcribe") for sound in sounds]
    assert any(len(one) > 1 for one in wanted)
    engine = make_real_engine(tmp_path)
    asked = [speech(sound, language="german") for sound in sounds]
    for together in (transcribe(engine, *asked), [transcribe(engine, one)[0] for one in asked]):
        for payloads, one in zip(together, wanted, strict=True):
            same(found(payloads), one, seconds)
            assert payloads[-2] == Transcribed("de", seconds)
            usage = payloads[-1].usage
            assert (usage.audio_tokens, usage.audio_seconds) == (round(50 * seconds), seconds)
            assert usage.completion_tokens == sum(len(ids) for *_, ids in one)


def test_a_text_before_the_sound_and_a_translation_change_the_tokens_as_in_transformers(tmp_path, make_real_engine):
    model, sound = write_whisper(tmp_path), tones(30, 5)
    engine = make_real_engine(tmp_path)
    plain, prompted, translated = transcribe(
        engine,
        speech(sound, language="en"),
        speech(sound, language="en", prompt="  w "),
        speech(sound, language="en", translates=True),
    )
    mark = model.generation_config.prev_sot_token_id
    prompt_ids = torch.tensor([mark, Tokenizer.from_path(tmp_path).encode(" w")[0]])
    same(found(prompted), reference(model, sound, language="en", task="transcribe", prompt_ids=prompt_ids), 30)
    same(found(translated), reference(model, sound, language="en", task="translate"), 30)
    assert found(plain) != found(prompted)
    assert (plain[0].num_prompt_tokens, prompted[0].num_prompt_tokens) == (1500, 1502)


def test_the_language_is_heard_as_transformers_hears_it(tmp_path, make_real_engine):
    model, sound = write_whisper(tmp_path), tones(30, 1)
    inputs = transformers.WhisperFeatureExtractor()(
        sound.astype(np.float32) / 2**15, sampling_rate=RATE, return_tensors="pt"
    )
    code = int(model.detect_language(inputs.input_features)[0])
    names = {token_id: text.strip("<|>") for text, token_id in model.generation_config.lang_to_id.items()}
    (payloads,) = transcribe(make_real_engine(tmp_path), speech(sound))
    assert payloads[-2].language == names[code]


def test_moonshine_writes_what_transformers_does_in_windows_cut_at_pauses(tmp_path, make_real_engine):
    model, sound = write_moonshine(tmp_path), tones(41, 3)
    samples = torch.from_numpy(sound.astype(np.float32) / 2**15)
    places = list(windows(samples))
    assert len(places) == 2
    assert places[0][1] == places[1][0]
    assert (places[0][0], places[1][1]) == (0, len(samples))
    wanted, tokenizer = [], Tokenizer.from_path(tmp_path)
    for start, stop in places:
        most = min(193, 8 + int((stop - start) / RATE * 6.5))
        made = model.generate(samples[None, start:stop], max_new_tokens=most, do_sample=False)[0, 1:]
        wanted.append([token_id for token_id in made.tolist() if not tokenizer.is_special(token_id)])
    engine = make_real_engine(tmp_path)
    together = transcribe(engine, *[speech(sound)] * 2)
    for payloads in together:
        assert [ids for *_, ids in found(payloads)] == [ids for ids in wanted if ids]
        assert payloads[-2] == Transcribed("en", 41.0)
    assert describe(tmp_path).kind == "transcriber"


def test_moonshine_leaves_no_window_at_a_quiet_end_that_its_encoder_refuses(tmp_path):
    write_moonshine(tmp_path)
    model = load_speech_model(tmp_path, torch.device("cpu"), torch.float32)
    loud = torch.from_numpy(tones(30, 3).astype(np.float32) / 2**15)
    for length in (480_001, 480_051, 481_600):
        samples = torch.cat([loud, torch.zeros(1_600)])[:length]
        samples[-2_400:] = 0
        places = list(windows(samples))
        assert min(stop - start for start, stop in places) >= 1_600
        for _ in model.transcribe(samples[places[-1][0] :], [], SpeechOptions("en")):
            pass


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"language": "klingon"}, "language"),
        ({"translates": True}, "model"),
        ({"prompt": "Names"}, "prompt"),
        ({"wants_words": True}, "timestamp_granularities[]"),
    ],
)
def test_what_a_model_cannot_do_is_refused_by_the_field(tmp_path, make_real_engine, options, param):
    write_moonshine(tmp_path)
    ((refused,),) = transcribe(make_real_engine(tmp_path), speech(tones(1), **options))
    assert isinstance(refused, Rejected)
    assert (refused.code, refused.param) == (ErrorCode.INVALID_VALUE, param)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "audio"),
        (b"no sound at all", "audio"),
        (wav(tones(1))[:30], "audio"),
        (wav(tones(0.05)), "at least 0.1 seconds"),
        (wav(tones(1), rate=1), "samples a second"),
        (wav(tones(9)), "at most 5 seconds"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "audio"),
    ],
)
def test_a_bad_sound_is_refused_with_the_field_and_the_remedy(tmp_path, make_real_engine, data, said):
    write_moonshine(tmp_path)
    engine = make_real_engine(tmp_path, media=MediaLimits(max_transcription_seconds=5, media_audio_timeout=60))
    asked = Speech(base64.b64encode(data).decode(), param="file")
    ((refused,),) = transcribe(engine, asked)
    assert isinstance(refused, Rejected)
    assert refused.param == "file"
    assert said in refused.message


@pytest.mark.parametrize("write", [write_whisper, write_moonshine])
def test_a_tiny_temperature_is_none(tmp_path, make_real_engine, write):
    write(tmp_path)
    sound = tones(3, 2)
    tiny, none = transcribe(make_real_engine(tmp_path), speech(sound, temperature=1e-39), speech(sound))
    assert found(tiny) == found(none)
    assert spoken(tiny)
    assert {one.temperature for one in spoken(tiny)} == {0.0}


def test_a_small_temperature_draws_what_is_most_likely():
    scores, draws = torch.tensor([1.0, 3e38, -torch.inf]), torch.Generator().manual_seed(0)
    assert chosen_token(scores, 1e-5, draws) == 1


def test_a_prompt_of_tokens_that_the_model_lacks_is_refused(tmp_path, make_real_engine):
    write_whisper(tmp_path)
    file = tmp_path / "tokenizer.json"
    written = json.loads(file.read_text())
    piece = Tokenizer.from_path(tmp_path).backend.encode(" w").tokens[0]
    written["model"]["vocab"][piece] = 1_000_000
    file.write_text(json.dumps(written))
    ((refused,),) = transcribe(make_real_engine(tmp_path), speech(tones(1), language="en", prompt="w"))
    assert isinstance(refused, Rejected)
    assert (refused.code, refused.param) == (ErrorCode.INVALID_VALUE, "prompt")
    assert "token that the model does not have" in refused.message


def test_an_aborted_request_is_freed_and_others_go_on(tmp_path, make_real_engine):
    write_whisper(tmp_path)
    engine = make_real_engine(tmp_path)
    long, short = speech(tones(300, 1), language="en"), speech(tones(3, 2), language="en")
    engine.submit("long", task=Task.TRANSCRIBE, speech=long, messages=(), tenant="one")
    engine.submit("short", task=Task.TRANSCRIBE, speech=short, messages=(), tenant="two")
    events = {"long": [], "short": []}
    while not (events["short"] and events["short"][-1].is_terminal):
        for run in engine.publication():
            events[run.run_id] += run.events
    assert not events["long"][-1].is_terminal, "the short one need not wait for the long one"
    engine.engine.abort("long", Outcome.STOPPED)
    while not events["long"][-1].is_terminal:
        for run in engine.publication():
            events[run.run_id] += run.events
    assert events["long"][-1].payload.outcome is Outcome.STOPPED
    stats = engine.core_stats()
    assert (stats.num_running, stats.num_waiting, stats.integrity) == (0, 0, "")


def test_after_a_takeover_only_what_is_not_logged_is_published(tmp_path, make_real_engine):
    write_whisper(tmp_path)
    engine = make_real_engine(tmp_path)
    asked = speech(tones(70, 1), language="en")
    engine.submit("run", task=Task.TRANSCRIBE, speech=asked, messages=())
    events = engine.events_to_end("run")["run"]
    logged = tuple(events[:2])
    assert isinstance(logged[1].payload, SegmentSpoken)
    engine.submit("run", resume=Resume(logged), task=Task.TRANSCRIBE, speech=asked, messages=())
    rest = engine.events_to_end("run")["run"]
    assert [(one.start, one.payload) for one in rest[:-1]] == [(one.start, one.payload) for one in events[2:-1]]
    assert rest[-1].payload.usage == events[-1].payload.usage


def test_a_takeover_by_a_device_that_cuts_otherwise_goes_on_where_the_log_ends(tmp_path, make_real_engine):
    write_whisper(tmp_path)
    engine = make_real_engine(tmp_path)
    asked = speech(tones(70, 1), language="en")
    engine.submit("run", task=Task.TRANSCRIBE, speech=asked, messages=())
    events = engine.events_to_end("run")["run"]
    first, second, third = (one.payload for one in events[1:4])
    assert second.end_s <= third.start_s
    joined = dataclasses.replace(events[1], payload=dataclasses.replace(first, end_s=second.end_s))
    engine.submit("run", resume=Resume((events[0], joined)), task=Task.TRANSCRIBE, speech=asked, messages=())
    rest = engine.events_to_end("run")["run"]
    assert [one.payload for one in rest[:-1]] == [one.payload for one in events[3:-1]]


def test_an_english_model_without_suppressed_tokens_knows_no_languages(tmp_path, make_real_engine):
    write_whisper(tmp_path)
    file = tmp_path / "generation_config.json"
    known = json.loads(file.read_text())
    for name in ("lang_to_id", "task_to_id", "suppress_tokens", "begin_suppress_tokens"):
        del known[name]
    file.write_text(json.dumps(known))
    engine = make_real_engine(tmp_path)
    sound = tones(2, 1)
    plain, refused, german = transcribe(
        engine, speech(sound), speech(sound, translates=True), speech(sound, language="de")
    )
    assert plain[-2] == Transcribed("en", 2.0)
    assert (refused[0].param, german[0].param) == ("model", "language")


def test_silence_has_no_text(tmp_path, make_real_engine):
    write_whisper(tmp_path, logprob_threshold=0.0, no_speech_threshold=0.0)
    (payloads,) = transcribe(make_real_engine(tmp_path), speech(np.zeros(RATE * 2, np.int16), language="en"))
    assert spoken(payloads) == []
    assert payloads[-2] == Transcribed("en", 2.0)


def test_special_tokens_are_no_part_of_a_text(tmp_path, make_real_engine):
    write_whisper(tmp_path)
    file = tmp_path / "generation_config.json"
    known = json.loads(file.read_text())
    end = known["eos_token_id"]
    known["suppress_tokens"] = [token_id for token_id in range(end + 1) if token_id % 50]
    known["begin_suppress_tokens"] = []
    file.write_text(json.dumps(known))
    asked = [speech(tones(12, seed), language="en", wants_words=True, wants_logprobs=True) for seed in range(3)]
    tokenizer = Tokenizer.from_path(tmp_path)
    for payloads in transcribe(make_real_engine(tmp_path), *asked):
        for one in spoken(payloads):
            assert not any(map(tokenizer.is_special, one.token_ids))
            assert "<|" not in "".join([one.text, *(word.text for word in one.words)])
            assert b"".join(part.token_bytes for part in one.logprobs).decode(errors="replace") == one.text
        assert payloads[-1].usage.completion_tokens == sum(len(one.token_ids) for one in spoken(payloads))


def test_words_come_with_their_times_in_order(tmp_path, make_real_engine):
    write_whisper(tmp_path)
    (payloads,) = transcribe(make_real_engine(tmp_path), speech(tones(12, 4), language="en", wants_words=True))
    words = [word for one in spoken(payloads) for word in one.words]
    assert words
    assert all(0 <= word.start_s <= word.end_s <= 12.1 for word in words)
    assert [word.start_s for word in words] == sorted(word.start_s for word in words)


def test_the_input_is_that_of_transformers_also_where_it_is_made_in_pieces():
    extractor = transformers.WhisperFeatureExtractor()
    sound = tones(61.5, 7).astype(np.float32) / 2**15
    wanted = extractor(sound, sampling_rate=RATE, truncation=False, padding="longest", return_tensors="pt")
    log_mel = LogMel(torch.from_numpy(extractor.mel_filters), extractor.n_fft, extractor.hop_length)
    pieces = list(log_mel.pieces(torch.from_numpy(sound)))
    assert len(pieces) == 2
    torch.testing.assert_close(LogMel.joined(pieces), wanted.input_features[0], atol=1e-4, rtol=0)


def test_a_request_that_goes_on_keeps_the_input_of_the_encoder_and_no_other_form_of_its_sound(tmp_path):
    write_whisper(tmp_path)
    model = load_speech_model(tmp_path, torch.device("cpu"), torch.float32)
    samples = torch.from_numpy(tones(90, 1).astype(np.float32) / 2**15)
    sound = weakref.ref(samples)
    steps = model.transcribe(samples, [], SpeechOptions("en"))
    del samples
    for _ in range(3):  # two pieces, and a window
        next(steps)
    assert sound() is None
    kept = inspect.getgeneratorlocals(steps)
    assert kept["frames"].shape == (80, 9_000)
    assert {name for name, one in kept.items() if isinstance(one, torch.Tensor | list) and len(one)} == {
        "frames",
        "states",
    }
    steps.close()


def test_the_cheapest_way_is_that_of_trying_all():
    costs = np.random.default_rng(1).normal(size=(4, 5))

    def best(row, column):
        if (row, column) == (0, 0):
            return costs[0, 0], [(0, 0)]
        before = [(row - 1, column - 1), (row - 1, column), (row, column - 1)]
        cost, way = min(best(*place) for place in before if min(place) >= 0)
        return cost + costs[row, column], [*way, (row, column)]

    rows, columns = cheapest_way(costs)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == best(3, 4)[1]


def test_what_a_model_is_and_takes_is_known_before_it_is_loaded(tmp_path):
    write_whisper(tmp_path)
    described = describe(tmp_path)
    assert (described.kind, described.context, described.num_layers) == ("transcriber", 64, 2)
    assert "(transcriber)" in describe_model(tmp_path)
    need = memory_need(EngineConfig(tmp_path, "tiny"))
    assert need.weights_bytes > 0
    assert need.refusal(need.total_bytes) == ""
    (tmp_path / "generation_config.json").write_text("{}")
    with pytest.raises(ModelLoadError, match="no_timestamps_token_id"):
        describe(tmp_path)


def test_a_folder_that_lacks_tensors_is_refused(tmp_path, make_real_engine):
    write_whisper(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.encoder.conv1.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match="missing"):
        load_speech_model(tmp_path, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(
    ("language", "tokens", "words"),
    [
        ("en", [" Hello", ",", " (", "sea", ")", " w", "ind", "."], ["Hello,", "(sea)", "wind."]),
        ("zh", ["你", "好", "。"], ["你", "好。"]),
        ("en", [" caf", "\xc3", "\xa9"], ["café"]),
    ],
)
def test_tokens_become_words_with_their_punctuation(language, tokens, words):
    class Spelled:
        def token_bytes(self, token_id):
            text = tokens[token_id]
            return text.encode("latin-1") if len(text) == 1 and 0x80 <= ord(text) < 0x100 else text.encode()

    times = [float(place) for place in range(len(tokens))]
    ids = list(range(len(tokens)))
    segment = SpokenSegment(
        0.0, 9.0, ids, [0.0] * len(ids), language=language, token_starts=times, token_ends=[time + 1 for time in times]
    )
    made = list(spoken_words(segment, Spelled()))
    assert [word.text for word in made] == words
    assert all(word.start_s < word.end_s for word in made)


def test_a_killed_core_is_replaced_and_goes_on_with_the_sound(tmp_path):
    write_whisper(tmp_path)
    asked = speech(tones(70, 1), language="en")
    published: queue.SimpleQueue = queue.SimpleQueue()
    engine = Engine(EngineConfig(tmp_path, "tiny", weights="float32", num_threads=1), published.put)
    engine.start()
    try:
        whole = events_of(engine, published, asked)
        first_core = engine.core_pid
        broken = events_of(engine, published, asked, at_first=lambda: os.kill(engine.core_pid, signal.SIGKILL))
        assert engine.core_pid != first_core
        assert engine.stats().num_restarts == 1
    finally:
        engine.close()
    assert len(whole) > 3
    assert [one.payload for one in whole[1:-1]] == [one.payload for one in broken[1:-1]]


def events_of(engine, published, asked, at_first=lambda: None):
    """Return the events of a run; `at_first` is called at its first segment."""
    engine.submit(GenerationRequest("run", "tiny", (), arrived_at=0.0, task=Task.TRANSCRIBE, speech=asked))
    events = []
    while not (events and events[-1].is_terminal):
        (run,) = published.get(timeout=120)
        if not any(isinstance(one.payload, SegmentSpoken) for one in events):
            events += run.events
            if any(isinstance(one.payload, SegmentSpoken) for one in events):
                at_first()
            continue
        events += run.events
    return events
