"""Files and images in messages are charged by what they may have of tokens, not by the letters of their base64."""

import base64

import numpy as np

from chat.generation.cost import (
    HEARD_TOKENS,
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    MOST_IMAGE_TOKENS,
    MOST_VIDEO_TOKENS,
    TEMPLATE_TOKENS,
    VIDEO_TOKENS,
    WINDOW_TOKENS,
    request_cost,
)
from engine.api import GenerationRequest
from engine.api.media import MediaLimits
from tests.engine.speech_folders import wav

FRAME_BYTES = 200


def cost(content: bytes, *, head: str = "", context: int | None = None, number: int = 1):
    file = {"file_data": head + base64.b64encode(content).decode(), "filename": "x"}
    parts = [{"type": "file", "file": file, "param": "p"}] * number
    messages = ({"role": "user", "content": [{"type": "text", "text": "Hi"}, *parts]},)
    return request_cost(GenerationRequest("run", "model", messages, 0.0), messages, context=context)


def test_a_text_is_estimated_and_bounded_by_its_bytes():
    for head in ("", "data:text/plain;base64,"):
        charged = cost(b"x" * 30_000, head=head)
        assert 7_500 <= charged.input_tokens <= 7_520
        assert 30_000 <= charged.input_bound <= 30_050 + TEMPLATE_TOKENS + MESSAGE_TOKENS + FRAME_BYTES


def test_a_packed_file_is_bounded_by_the_text_that_any_file_may_have():
    assert 4_000_000 <= cost(b"PK\x03\x04" + b"x" * 30_000).input_bound <= 4_001_000
    pages = MediaLimits().max_page_images * MOST_IMAGE_TOKENS
    assert 4_000_000 + pages <= cost(b"\n%PDF-1.7" + b"x" * 30_000).input_bound <= 4_001_000 + pages


def test_what_a_request_is_charged_never_exceeds_the_context():
    charged = cost(b"%PDF" + b"x" * (8 << 20), context=2048, number=3)
    assert (charged.input_tokens, charged.input_bound) == (2048, 2048)


def test_a_file_whose_beginning_cannot_be_decoded_has_the_largest_bound():
    file = {"type": "file", "file": {"file_data": "A"}}
    messages = ({"role": "user", "content": [file]},)
    assert request_cost(GenerationRequest("run", "m", messages, 0.0), messages).input_bound >= 4_000_000


def test_an_image_is_charged_as_such_however_it_is_written():
    data = base64.b64encode(b"x" * 3_000_000).decode()
    parts = [
        {"type": "image", "data": data, "detail": "auto", "param": "p"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"image_url": "https://files.example/x.png"},
    ]
    for part in parts:
        messages = ({"role": "user", "content": [{"type": "text", "text": "Hi"}, part, part]},)
        charged = request_cost(GenerationRequest("run", "model", messages, 0.0), messages)
        assert 2 * IMAGE_TOKENS <= charged.input_tokens <= 2 * IMAGE_TOKENS + 20
        least = 2 * MOST_IMAGE_TOKENS
        assert least <= charged.input_bound <= least + TEMPLATE_TOKENS + MESSAGE_TOKENS + FRAME_BYTES


def test_a_video_is_charged_as_such_however_it_is_written():
    data = base64.b64encode(b"x" * 300_000).decode()
    parts = [
        {"type": "video", "data": data, "frames": False, "param": "p"},
        {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{data}"}},
        {"video_url": "https://files.example/x.mp4"},
    ]
    for part in parts:
        messages = ({"role": "user", "content": [{"type": "text", "text": "Hi"}, part]},)
        charged = request_cost(GenerationRequest("run", "model", messages, 0.0), messages)
        assert VIDEO_TOKENS <= charged.input_tokens <= VIDEO_TOKENS + 20
        least = MOST_VIDEO_TOKENS
        assert least <= charged.input_bound <= least + TEMPLATE_TOKENS + MESSAGE_TOKENS + FRAME_BYTES


def test_a_sound_is_charged_by_its_seconds_however_it_is_written():
    wav_file = wav(np.zeros(10 * 16_000, np.int16))
    data = base64.b64encode(wav_file).decode()
    parts = [
        {"type": "audio", "data": data, "param": "p"},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"audio_url": f"data:audio/wav;base64,{data}"},
    ]
    for part in parts:
        messages = ({"role": "user", "content": [{"type": "text", "text": "Hi"}, part]},)
        charged = request_cost(GenerationRequest("run", "model", messages, 0.0), messages)
        assert 10 * HEARD_TOKENS <= charged.input_tokens <= 10 * HEARD_TOKENS + 20
        least = 10 * HEARD_TOKENS + WINDOW_TOKENS
        assert least <= charged.input_bound <= least + TEMPLATE_TOKENS + MESSAGE_TOKENS + FRAME_BYTES


def test_the_bytes_of_a_compressed_or_remote_sound_do_not_bound_its_length():
    for part in ({"input_audio": base64.b64encode(b"ID3" + bytes(16_000)).decode()}, {"audio_url": "https://a/x.mp3"}):
        messages = ({"role": "user", "content": [part]},)
        charged = request_cost(GenerationRequest("run", "model", messages, 0.0), messages)
        assert charged.input_tokens <= 2 * HEARD_TOKENS
        assert charged.input_bound >= 600 * HEARD_TOKENS
