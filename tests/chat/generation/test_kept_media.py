"""The request log says how much a request had beside text, and nothing of what it was."""

import base64

from chat.generation.kept_media import media_kept
from engine.api import GenerationRequest, Speech


def kept(*parts):
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": list(parts)})
    return media_kept(GenerationRequest("run", "model", messages, 0.0))


def encoded(num_bytes: int) -> str:
    return base64.b64encode(b"x" * num_bytes).decode()


def test_each_kind_is_counted_with_its_bytes():
    file = {"file_data": f"data:application/pdf;base64,{encoded(301)}", "filename": "secret.pdf"}
    assert kept(
        {"type": "text", "text": "data:image/png;base64,AAAA"},
        {"type": "image", "data": encoded(100), "detail": "auto"},
        {"type": "image", "data": encoded(101)},
        {"type": "audio", "data": b"x" * 7},
        {"type": "file", "file": file},
    ) == {
        "image": {"number": 2, "bytes": 201},
        "audio": {"number": 1, "bytes": 7},
        "file": {"number": 1, "bytes": 301},
    }


def test_text_has_nothing_and_odd_parts_count_without_bytes():
    assert kept({"type": "text", "text": "Hi"}) == {}
    assert kept({"type": "file", "file": None}, {"type": "image"}, "text") == {
        "file": {"number": 1, "bytes": 0},
        "image": {"number": 1, "bytes": 0},
    }


def test_sound_that_is_written_down_is_counted():
    speech = Speech(encoded(500))
    assert media_kept(GenerationRequest("run", "model", (), 0.0, speech=speech)) == {
        "audio": {"number": 1, "bytes": 500}
    }
