"""What a worker keeps of a run's prompt and answer: whole, without media, cut to a size."""

from __future__ import annotations

import zlib

import pytest

from chat.relay.state import runs
from chat.relay.state.kept_texts import texts_packed, texts_unpacked
from engine.api import Delta, Event, GenerationRequest, RawPrompt, SegmentSpoken, Speech, ToolCallDelta
from tests.chat.relay.world import ABOUT, World

MOST = 10_000


def request(content: object = "Hello", **fields: object) -> GenerationRequest:
    messages = ({"role": "user", "content": content},)
    return GenerationRequest(run_id="0" * 32, model="small", messages=messages, arrived_at=1.0, **fields)  # type: ignore[arg-type]


def deltas(*payloads: Delta) -> list[Event]:
    return [Event(index, 1, payload) for index, payload in enumerate(payloads)]


def test_answers_are_joined_by_choice_with_reasoning_and_calls() -> None:
    events = deltas(
        Delta(0, (1,), reasoning="hm"),
        Delta(1, (2,), "B"),
        Delta(0, (3,), "A1"),
        Delta(0, (4,), "A2", tool_calls=(ToolCallDelta(0, "c", "add", '{"x"'),)),
        Delta(0, (5,), tool_calls=(ToolCallDelta(0, arguments=":1}"),)),
    )
    kept = texts_unpacked(texts_packed(request(), events, most=MOST), most=MOST)
    assert kept["request"] == {"model": "small", "messages": [{"role": "user", "content": "Hello"}]}
    assert kept["answers"] == [
        {"reasoning": "hm", "content": "A1A2", "tool_calls": [{"name": "add", "arguments": '{"x":1}'}]},
        {"content": "B"},
    ]
    assert kept["is_cut"] is False


def test_media_become_kind_size_and_hash() -> None:
    data = "data:image/png;base64," + "QUJD" * 200
    parts = [{"type": "file", "file": {"file_data": data, "filename": "a.png"}}, {"type": "text", "text": "what?"}]
    kept = texts_unpacked(texts_packed(request(parts), [], most=MOST), most=MOST)
    file = kept["request"]["messages"][0]["content"][0]["file"]
    assert file["filename"] == "a.png"
    assert file["file_data"].startswith("[image/png, 600 bytes, sha256 of its base64 ")
    assert "QUJD" not in str(kept)


def test_long_texts_are_cut_the_answer_last() -> None:
    packed = texts_packed(request("x" * 50_000), deltas(Delta(0, (1,), "the answer")), most=2_000)
    kept = texts_unpacked(packed, most=MOST)
    assert kept["is_cut"] is True
    assert kept["answers"] == [{"content": "the answer"}]
    content = kept["request"]["messages"][0]["content"]
    assert content.endswith("[… cut here]")
    assert 1_500 < len(content) < 2_100


def test_prompts_of_tokens_and_texts_are_kept_without_messages() -> None:
    for raw, prompt in ((RawPrompt("Once"), "Once"), (RawPrompt(token_ids=(1, 2)), "[2 token ids]")):
        kept = texts_unpacked(texts_packed(request(raw=raw), [], most=MOST), most=MOST)
        assert kept["request"] == {"model": "small", "prompt": prompt}


def test_of_sound_the_text_is_kept_and_the_size_alone() -> None:
    speech = Speech("QUJD" * 200, prompt="Names")
    events = [Event(place, 1, SegmentSpoken(0.0, 1.0, text)) for place, text in enumerate((" The", " sea."))]
    kept = texts_unpacked(texts_packed(request(speech=speech), events, most=MOST), most=MOST)
    assert kept["answers"] == [{"content": " The sea."}]
    assert kept["request"]["prompt"] == "Names"
    assert kept["request"]["file"].startswith("[audio, 600 bytes, sha256")


@pytest.mark.parametrize("packed", [b"", b"x", zlib.compress(b"[]"), zlib.compress(b"{"), zlib.compress(b" " * 20_000)])
def test_what_was_not_packed_so_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        texts_unpacked(packed, most=MOST)


async def test_a_worker_keeps_texts_of_runs_that_ask_for_it_whoever_reads(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    for about, is_kept in ((ABOUT | {"text_bytes": MOST}, True), (ABOUT, False)):
        reader, voice = await world.run(web, worker, about=about)
        reader.leave()
        voice.admit()
        voice.token("Hel")
        await worker.flush()
        voice.token("lo")
        voice.end()
        await worker.flush()
        [record] = await world.records()
        assert ("texts" in record) == is_kept
        if is_kept:
            kept = texts_unpacked(record["texts"], most=MOST)
            assert kept["answers"] == [{"content": "Hello"}]
            assert kept["request"]["messages"] == [{"role": "user", "content": "hi"}]


async def test_texts_are_left_out_while_the_usage_writer_is_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_UNREAD_WITH_TEXTS", 2)
    web, worker = await world.web(), await world.worker()
    for _ in range(3):
        _, voice = await world.run(web, worker, about=ABOUT | {"text_bytes": MOST})
        voice.admit()
        voice.end()
        await worker.flush()
    records = await world.records()
    assert [bool(record["texts"]) for record in records] == [True, True, False]
    assert all(record["prompt_tokens"] for record in records)
