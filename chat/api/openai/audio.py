"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`: a sound becomes text (docs/api/audio.md)."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from chat.api.answering.pipeline import request_start, run_start
from chat.api.answering.streaming import admission_wait, answer_collect, run_answer
from chat.api.dialect import AnswerHead
from chat.api.openai.dialect import PromptFormat
from chat.api.openai.transcripts import CONTENT_TYPES, FORMATS, JSON, TEXT, VERBOSE, Transcript, TranscriptStream
from chat.api.request.fields import Array, Number, RequestField, Text, bad_value, echo, refuse
from chat.api.request.form import SentFile, form_read
from chat.api.request.parse import fields_read, unknown_names, values_parse
from chat.api.request.parsed import ParsedRequest
from chat.api.request.schema import SharingRequest
from engine.api import Speech, Task

ARRAYS = ("timestamp_granularities", "include")
GRANULARITIES, INCLUDED = ("word", "segment"), ("logprobs",)
MAX_PROMPT_CHARS = 8_192
WITH_EXPONENT = re.compile(r"[+-]?([0-9]{1,64}(\.[0-9]{0,64})?|\.[0-9]{1,64})[eE][+-]?[0-9]{1,4}", re.ASCII)
NOT_SERVED = {
    "known_speaker_names": "speakers are not told apart; leave it out",
    "known_speaker_references": "speakers are not told apart; leave it out",
    "hotwords": "name them in prompt",
}
"""Fields that would change the text -> what to do instead."""


class FormNumber(Number):
    """A number of a form, which clients write as their language does: small ones with an exponent."""

    def to_internal_value(self, data: Any) -> Any:
        is_with_exponent = isinstance(data, str) and WITH_EXPONENT.fullmatch(data)
        return super().to_internal_value(float(data) if is_with_exponent else data)


class SoundFile(RequestField):
    """The file of the form."""

    json_schema = {"type": "string", "format": "binary"}
    missing = "is required: a part with a filename"

    def to_internal_value(self, data: Any) -> SentFile:
        if not isinstance(data, SentFile):
            raise refuse("invalid_type", "must be a file: a part with a filename")
        if not data.data:
            raise refuse("invalid_value", "must not be empty")
        return data


def one_of(choices: tuple[str, ...], value: Any) -> str:
    """Return an item of a list. Raises ValidationError."""
    if value not in choices:
        raise refuse("invalid_value", f"must be one of {', '.join(choices)}; got {echo(value)}")
    return str(value)


class TranscriptionRequest(SharingRequest):
    file = SoundFile("Sound in a usual format, or a video with some.", is_required=True)
    language = Text(
        "The language that is spoken, as a code (ISO 639) or its English name. Absent: heard.", max_chars=64
    )
    prompt = Text("Text that came before, or that sets names, spelling and style.", max_chars=MAX_PROMPT_CHARS)
    response_format = Text("The form of the answer.", choices=FORMATS, default=JSON)
    temperature = FormNumber(
        "0: the most likely text, and warmer draws where that is doubtful.", minimum=0.0, maximum=1.0, default=0.0
    )
    timestamp_granularities = Array(
        partial(one_of, GRANULARITIES),
        item_schema={"type": "string", "enum": list(GRANULARITIES)},
        max_items=2,
        help_text="With verbose_json: times of segments, of words, or both. Absent: segments.",
    )
    include = Array(
        partial(one_of, INCLUDED),
        item_schema={"type": "string", "enum": list(INCLUDED)},
        max_items=1,
        help_text="With json: logprobs of the tokens.",
    )
    chunking_strategy = Text("The model cuts long sounds itself.", choices=("auto",))

    shared = tuple("model stream seed user priority request_id service_tier metadata safety_identifier".split())


SCHEMA = TranscriptionRequest()


class Transcriptions(PromptFormat):
    """The form in, and the transcript out."""

    task = "transcribe"
    translates = False

    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        for name, remedy in NOT_SERVED.items():
            if name in body or f"{name}[]" in body:
                raise bad_value(name, f"is not served; {remedy}", "unsupported_parameter")
        if any(name.startswith("chunking_strategy[") for name in body):
            message = "must be auto: the model cuts long sounds itself, where somebody pauses; leave it out"
            raise bad_value("chunking_strategy", message, "unsupported_parameter")
        given = fields_read(SCHEMA, body)
        _together_check(given)
        parsed = values_parse({name: given[name] for name in SCHEMA.shared}, ignored=unknown_names(body, SCHEMA.fields))
        wanted = given["timestamp_granularities"] or ["segment"]
        speech = Speech(
            base64.b64encode(given["file"].data).decode("ascii"),
            language=(given["language"] or "").strip(),
            translates=self.translates,
            prompt=given["prompt"] or "",
            temperature=given["temperature"],
            wants_words="word" in wanted,
            wants_logprobs=bool(given["include"]),
        )
        echoed = {
            "response_format": given["response_format"],
            "granularities": wanted,
            "logprobs": speech.wants_logprobs,
            "task": self.task,
        }
        return replace(
            parsed,
            generation=replace(parsed.generation, task=Task.TRANSCRIBE, speech=speech),
            response=replace(parsed.response, echo_fields=echoed),
        )

    def answer(self, head: AnswerHead) -> Transcript:
        return Transcript(head)

    def stream(self, head: AnswerHead) -> TranscriptStream:
        return TranscriptStream(head)


class Translations(Transcriptions):
    """The same, in English."""

    task = "translate"
    translates = True


TRANSCRIPTIONS, TRANSLATIONS = Transcriptions(), Translations()


def _together_check(given: dict[str, Any]) -> None:
    """Refuse what the format of the answer has no place for. Raises ApiError."""
    form = given["response_format"]
    if given["timestamp_granularities"] and form != VERBOSE:
        message = f"goes with response_format {VERBOSE} alone, got {form}"
        raise bad_value("timestamp_granularities[]", message)
    if given["include"] and form != JSON:
        raise bad_value("include[]", f"goes with response_format {JSON} alone, got {form}")
    if given["stream"] and form not in (JSON, TEXT):
        raise bad_value("stream", f"goes with response_format {JSON} or {TEXT}, got {form}")


async def transcription(request: HttpRequest, dialect: Transcriptions) -> HttpResponseBase:
    request.lightcone_any_type = True
    read = partial(form_read, content_type=request.headers.get("Content-Type", ""), arrays=ARRAYS)
    accepted, run = await request_start(request, dialect, run_start, read=read)
    if accepted.parsed.response.stream:
        return await run_answer(request, dialect, accepted, run)
    request.lightcone_headers = run.reader.headers
    try:
        admitted = await admission_wait(run)
        body = await answer_collect(run.reader, dialect.answer(run.head.admitted(admitted)))
        form = accepted.parsed.response.echo_fields["response_format"]
        content_type = CONTENT_TYPES.get(form, "application/json")
        return HttpResponse(
            body, content_type=content_type, headers={"Cache-Control": "no-store", **run.reader.headers}
        )
    finally:
        run.reader.leave()
