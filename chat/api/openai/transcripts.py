"""The shapes of what was said: JSON, plain text, SubRip and WebVTT, and the events of a stream."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from chat.api.answering.streaming import DONE, compact_json, data_frame
from chat.api.dialect import AnswerHead
from chat.errors import ApiError
from engine.api import Completed, Event, SegmentSpoken, TokenLogprob, Transcribed, Usage
from engine.api.languages import LANGUAGES

JSON, TEXT, SRT, VERBOSE, VTT = "json", "text", "srt", "verbose_json", "vtt"
FORMATS = (JSON, TEXT, SRT, VERBOSE, VTT)
PLAIN_TEXT = "text/plain; charset=utf-8"
CONTENT_TYPES = {TEXT: PLAIN_TEXT, SRT: PLAIN_TEXT, VTT: "text/vtt; charset=utf-8"}
"""Those that are not JSON."""


class Transcript:
    """The answer of a run that writes down speech. `asked`: the echoed fields of the head."""

    def __init__(self, head: AnswerHead) -> None:
        self._asked: Mapping[str, Any] = head.echo_fields
        self._segments: list[SegmentSpoken] = []
        self._language, self._seconds = "", 0.0
        self._usage = Usage()

    def feed(self, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, SegmentSpoken):
            self._segments.append(payload)
        elif isinstance(payload, Transcribed):
            self._language, self._seconds = payload.language, payload.seconds
        elif isinstance(payload, Completed):
            self._usage = payload.usage

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self._segments).strip()

    def body(self) -> bytes:
        """Return the answer in the format that was asked for."""
        form = self._asked["response_format"]
        if form == TEXT:
            return f"{self.text}\n".encode()
        if form == SRT:
            return "".join(_srt(self._segments)).encode()
        if form == VTT:
            return "".join(("WEBVTT\n\n", *_vtt(self._segments))).encode()
        return orjson.dumps(self._verbose() if form == VERBOSE else self._plain())

    def done(self) -> dict[str, Any]:
        """Return the last event of a stream."""
        return {"type": "transcript.text.done", **self._plain()}

    def _plain(self) -> dict[str, Any]:
        logprobs = [entry for one in self._segments for entry in logprob_list(one.logprobs)]
        return {
            "text": self.text,
            **({"logprobs": logprobs} if self._asked["logprobs"] else {}),
            "usage": token_usage(self._usage),
        }

    def _verbose(self) -> dict[str, Any]:
        wanted = self._asked["granularities"]
        body: dict[str, Any] = {
            "task": self._asked["task"],
            "language": LANGUAGES.get(self._language, self._language),
            "duration": self._seconds,
            "text": self.text,
        }
        if "word" in wanted:
            words = (word for segment in self._segments for word in segment.words)
            body["words"] = [{"word": word.text, "start": word.start_s, "end": word.end_s} for word in words]
        if "segment" in wanted:
            body["segments"] = [_segment(number, one) for number, one in enumerate(self._segments)]
        return body | {"usage": {"type": "duration", "seconds": math.ceil(self._seconds)}}


class TranscriptStream:
    """The frames of a stream: an event for each segment, then the whole."""

    def __init__(self, head: AnswerHead) -> None:
        self._transcript = Transcript(head)
        self._has_logprobs = bool(head.echo_fields["logprobs"])
        self._has_begun = False

    def feed(self, event: Event) -> bytes:
        self._transcript.feed(event)
        payload = event.payload
        if isinstance(payload, Completed):
            return data_frame(compact_json(self._transcript.done())) + DONE
        if not isinstance(payload, SegmentSpoken):
            return b""
        text = payload.text if self._has_begun else payload.text.lstrip()
        self._has_begun = True
        frame: dict[str, Any] = {"type": "transcript.text.delta", "delta": text}
        if self._has_logprobs:
            frame["logprobs"] = logprob_list(payload.logprobs)
        return data_frame(compact_json(frame))

    def error(self, error: ApiError) -> bytes:
        return data_frame(json.dumps({"error": error.described()})) + DONE


def logprob_list(entries: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
    return [{"token": one.token, "logprob": one.logprob, "bytes": list(one.token_bytes)} for one in entries]


def token_usage(usage: Usage) -> dict[str, Any]:
    """Return the counts of tokens: those of the sound, of the text before it, and of what was written."""
    return {
        "type": "tokens",
        "input_tokens": usage.prompt_tokens,
        "input_token_details": {
            "audio_tokens": usage.audio_tokens,
            "text_tokens": usage.prompt_tokens - usage.audio_tokens,
        },
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _segment(number: int, one: SegmentSpoken) -> dict[str, Any]:
    return {
        "id": number,
        "seek": one.seek,
        "start": one.start_s,
        "end": one.end_s,
        "text": one.text,
        "tokens": list(one.token_ids),
        "temperature": one.temperature,
        "avg_logprob": one.mean_logprob,
        "compression_ratio": one.compression_ratio,
        "no_speech_prob": one.silence,
    }


def _srt(segments: Iterable[SegmentSpoken]) -> Iterator[str]:
    for number, one in enumerate(segments, 1):
        yield f"{number}\n{_clock(one.start_s, ',')} --> {_clock(one.end_s, ',')}\n{_line(one.text)}\n\n"


def _vtt(segments: Iterable[SegmentSpoken]) -> Iterator[str]:
    for one in segments:
        yield f"{_clock(one.start_s, '.')} --> {_clock(one.end_s, '.')}\n{_line(one.text)}\n\n"


def _line(text: str) -> str:
    """Return a text that cannot be taken for a cue's times or its end."""
    return " ".join(text.split()).replace("-->", "->")


def _clock(seconds: float, point: str) -> str:
    thousandths = round(seconds * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"
