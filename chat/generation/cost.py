"""What a request is charged before its worker has counted its tokens. The end of the run settles the difference."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from chat.relay.state.meters import Cost
from engine.api import MAX_FILE_CHARS, GenerationRequest, Speech, Task

CHARS_PER_TOKEN = 4
USUAL_OUTPUT_TOKENS = 512
TEMPLATE_TOKENS, MESSAGE_TOKENS = 256, 32
"""What chat templates add to a prompt, and to each message, at most."""
BYTES_OF_BASE64, BYTES_OF_CHAR = 3 / 4, 4
BEGIN_CHARS = 2048
IMAGE_TOKENS, MOST_IMAGE_TOKENS = 1024, 16_640
"""Of an image: what is usual, and what no model that is served takes more of (Qwen2-VL: 16,384, and what is around)."""
USUAL_VECTOR_BYTES, LEAST_VECTOR_BYTES = 4096, 128
"""Of a token whose vector is sent: 2048 numbers of two bytes, and the least that models have."""
USUAL_SOUND_BYTES = 16_000
"""Of a second of sound: 128 kbit/s."""
WAV_HEAD = struct.Struct("<4s4x8s4xHHI6xH")
"""The begin of a WAV file: RIFF, WAVEfmt, then encoding, channels, samples a second, and bits of a sample."""
PLAIN_ENCODINGS = (1, 3)
"""Whole numbers and floats, not compressed."""
SOUND_TOKENS, SPOKEN_TOKENS, MOST_SPOKEN_TOKENS, WINDOW_S = 50, 4, 15, 30
"""Tokens of a second of sound, of what is usually said in it, and the most that a model writes for it."""
VIDEO_TOKENS, MOST_VIDEO_TOKENS = 4096, 20_000
"""Of a video: 16,056 of the patches that one has at most (engine/media/qwen_videos.py), and times between."""
HEARD_TOKENS, WINDOW_TOKENS = 25, 375
"""Of a second of sound for models that hear, at most, and of the window that silence may fill."""
MOST_VECTORS = 4096
"""Of a sound, where they are sent."""
DATA = "data"
"""What a part has that the worker gets."""
SOUNDS = {"input_audio": DATA, "audio_url": "url", "audio": DATA}
"""The parts that are sound, and what holds its base64."""
MEDIA_TOKENS = {
    "image_url": (IMAGE_TOKENS, MOST_IMAGE_TOKENS),
    "image": (IMAGE_TOKENS, MOST_IMAGE_TOKENS),
    "image_embeds": (IMAGE_TOKENS, MOST_IMAGE_TOKENS),
    "audio_embeds": (IMAGE_TOKENS, MOST_VECTORS),
    "video_url": (VIDEO_TOKENS, MOST_VIDEO_TOKENS),
    "video": (VIDEO_TOKENS, MOST_VIDEO_TOKENS),
}
"""By the type of a part, as it was sent and as the worker gets it."""
BY_NAME = ("image_url", "image_embeds", "video_url", "audio_embeds", "input_audio", "audio_url")
"""The media of parts that have no type."""
PDF, PACKED = b"%PDF", b"PK"
"""How files begin whose texts may have more bytes than they have, and of the first pages that are images."""


def request_cost(request: GenerationRequest, messages: Sequence[Any], *, context: int | None = None) -> Cost:
    """Return the cost of a request. `messages` are those that were sent; `context`: the tokens of its model, if known.

    The estimate, for rates, takes four characters for a token. The bound, for hard budgets, takes a byte for one.
    """
    if request.task is Task.READ:
        return Cost()
    if request.speech is not None:
        return _speech_cost(request.speech)
    num_chars, num_bytes = _size(request, messages)
    num_chars = num_chars if context is None else min(num_chars, CHARS_PER_TOKEN * context)
    bound = num_bytes + TEMPLATE_TOKENS + MESSAGE_TOKENS * len(messages)
    bound = bound if context is None else min(bound, context)
    if request.task in (Task.EMBED, Task.SCORE):
        return Cost(input_tokens=num_chars // CHARS_PER_TOKEN, input_bound=bound)
    stop, answers = request.stop, request.num_sequences
    is_open = stop.max_tokens is None
    asked = stop.absent_max_tokens if stop.max_tokens is None else stop.max_tokens
    usual = min(asked or USUAL_OUTPUT_TOKENS, USUAL_OUTPUT_TOKENS) if is_open else min(asked or 0, USUAL_OUTPUT_TOKENS)
    most = min((size for size in (asked, context) if size is not None), default=-1)
    return Cost(
        input_tokens=num_chars // CHARS_PER_TOKEN,
        output_tokens=usual * answers,
        input_bound=bound,
        output_bound=most,
        num_answers=answers,
        min_tokens=max(0, stop.min_tokens),
        is_open=is_open,
    )


def _speech_cost(speech: Speech) -> Cost:
    """Return the cost of a sound. The bytes of a compressed one do not bound its length."""
    longest_s = min(settings.LIGHTCONE_MEDIA_LIMITS.max_transcription_seconds, _wav_seconds(speech.data))
    usual_s = min(longest_s, _num_bytes(speech.data) / USUAL_SOUND_BYTES)
    text = len(speech.prompt)
    return Cost(
        input_tokens=round(usual_s * SOUND_TOKENS) + text // CHARS_PER_TOKEN,
        output_tokens=round(usual_s * SPOKEN_TOKENS),
        input_bound=math.ceil(longest_s * SOUND_TOKENS) + BYTES_OF_CHAR * text + 1,
        output_bound=math.ceil((longest_s + WINDOW_S) * MOST_SPOKEN_TOKENS),
    )


def _wav_seconds(data: str) -> float:
    """Return the length of a WAV file that is not compressed, by its head and its bytes; infinity for other sound."""
    try:
        head = WAV_HEAD.unpack(base64.b64decode(data[: WAV_HEAD.size * 4 // 3]))
    except (ValueError, struct.error):
        return math.inf
    riff, wave, encoding, channels, rate, bits = head
    bytes_per_s: int = rate * channels * -(-bits // 8)
    if (riff, wave) != (b"RIFF", b"WAVEfmt ") or encoding not in PLAIN_ENCODINGS or not bytes_per_s:
        return math.inf
    return len(data) * BYTES_OF_BASE64 / bytes_per_s


def _size(request: GenerationRequest, messages: Sequence[Any]) -> tuple[int, int]:
    """Return the characters of a prompt, and the bytes that its tokens cannot outnumber."""
    raw = request.raw
    if raw is None:
        num_tokens, most_tokens, messages = _media_apart(messages)
        files, messages = _files_apart(messages)
        contents = [str(message.get("content") or "") for message in messages if isinstance(message, dict)]
        sent = json.dumps([messages, [tool.spec for tool in request.tools]], ensure_ascii=False, default=str)
        num_file_chars = sum(min(_num_bytes(data), MAX_FILE_CHARS) for data in files)
        num_bytes = len(sent.encode(errors="surrogatepass")) + sum(map(_most_file_bytes, files))
        num_media_chars = CHARS_PER_TOKEN * num_tokens
        return sum(map(len, contents)) + num_file_chars + num_media_chars, num_bytes + most_tokens
    num_ids = len(raw.token_ids or ())
    chars = len(raw.text) + len(raw.suffix or "") + CHARS_PER_TOKEN * num_ids
    document = raw.document or ""
    chars += min(len(document), CHARS_PER_TOKEN * (raw.max_document_tokens or len(document)))
    texts = (raw.text, raw.suffix or "", document)
    num_vector_bytes = _num_bytes(raw.embeds or "")
    chars += CHARS_PER_TOKEN * (num_vector_bytes // USUAL_VECTOR_BYTES)
    num_ids += num_vector_bytes // LEAST_VECTOR_BYTES
    return chars, num_ids + sum(len(text.encode(errors="surrogatepass")) for text in texts)


def _media_apart(messages: Sequence[Any]) -> tuple[int, int, list[Any]]:
    """Return the tokens of media, as usual and at most, and the messages without them: base64 says nothing of these."""
    num_tokens = most_tokens = 0
    rest: list[Any] = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            kinds = [_media_kind(part) for part in content]
            for kind, part in zip(kinds, content, strict=True):
                usual, most = _sound_tokens(kind, part) if kind in SOUNDS else MEDIA_TOKENS.get(kind, (0, 0))
                num_tokens, most_tokens = num_tokens + usual, most_tokens + most
            message = {**message, "content": [part for part, kind in zip(content, kinds, strict=True) if not kind]}
        rest.append(message)
    return num_tokens, most_tokens, rest


def _media_kind(part: Any) -> str:
    """Return the type of a part that holds media, whether or not it says so; "" for others."""
    if not isinstance(part, dict):
        return ""
    kind = part.get("type")
    if kind is None:
        return next((name for name in BY_NAME if name in part), "")
    is_known = isinstance(kind, str) and (kind in MEDIA_TOKENS or kind in SOUNDS)
    return str(kind) if is_known and (kind in part or DATA in part) else ""


def _sound_tokens(kind: str, part: dict[str, Any]) -> tuple[int, int]:
    """Return the tokens of a sound for a model that hears, as usual and at most."""
    if part.get("is_vectors") is True:
        return MEDIA_TOKENS["audio_embeds"]
    sound = part.get(kind, part.get(DATA))
    data = sound.get(SOUNDS[kind]) if isinstance(sound, dict) else sound
    data = data[data.find(",") + 1 if data.startswith("data:") else 0 :] if isinstance(data, str) else ""
    most_s = settings.LIGHTCONE_MEDIA_LIMITS.max_audio_seconds
    longest_s = min(most_s, _wav_seconds(data))
    usual_s = min(longest_s, _num_bytes(data) / USUAL_SOUND_BYTES)
    return math.ceil(usual_s * HEARD_TOKENS), math.ceil(longest_s * HEARD_TOKENS) + WINDOW_TOKENS


def _files_apart(messages: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """Return the contents of files in base64, and the messages without them. Only a worker knows their texts."""
    files: list[str] = []
    rest: list[Any] = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            found = [data for part in content if (data := _file_data(part)) is not None]
            if found:
                files += found
                message = {**message, "content": [part for part in content if _file_data(part) is None]}
        rest.append(message)
    return files, rest


def _num_bytes(file_data: str) -> int:
    return int(len(file_data) * BYTES_OF_BASE64)


def _most_file_bytes(file_data: str) -> int:
    """Return what the tokens of a file cannot outnumber: its bytes; of a packed one those of any text, and pages."""
    most = BYTES_OF_CHAR * MAX_FILE_CHARS
    head = file_data[: file_data.find(",") + 1 if file_data.startswith("data:") else 0]
    try:
        begin = base64.b64decode(file_data[len(head) : len(head) + BEGIN_CHARS]).lstrip()
    except ValueError:
        return most
    if begin.startswith(PDF):
        return most + MOST_IMAGE_TOKENS * int(settings.LIGHTCONE_MEDIA_LIMITS.max_page_images)
    return most if begin.startswith(PACKED) else min(most, _num_bytes(file_data))


def _file_data(part: Any) -> str | None:
    file = part.get("file") if isinstance(part, dict) and part.get("type") == "file" else None
    data = file.get("file_data") if isinstance(file, dict) else None
    return data if isinstance(data, str) else None
