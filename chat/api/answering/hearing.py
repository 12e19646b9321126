"""Have the sound in messages written down, for a model that has a transcriber: its parts become text.

A model that hears by itself gets the sound (images.py), whatever transcriber it has.

Each sound is a run of the transcriber, with the caller's limits, prices and line in the request log. What was heard
stands in the message as a quotation, and in the usage of the answer beside the tokens of the model itself.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.answering.images import media_fetcher
from chat.api.request.audio_parts import AUDIO, AUDIO_URL, INPUT_AUDIO
from chat.api.request.fields import echo
from chat.api.request.image_parts import BYTES_OF_BASE64, DATA_URL, ECHO_CHARS, HEAD_CHARS, REMOTE, part_type
from chat.api.request.parsed import DeliveryOptions, GenerationParams, ParsedRequest
from chat.catalog.named_models import modalities_live, model_transcriber
from chat.catalog.services import ModelEntry
from chat.errors import ApiError, engine_api_error
from chat.generation.completions import RunReader
from chat.generation.waiting import admission_await
from chat.media.data_urls import MediaBudget
from chat.media.fetching import MediaRequest
from engine.api import Completed, EngineError, Failed, Outcome, SegmentSpoken, Speech, Task, Usage
from engine.api.media import MediaKind

Start = Callable[[ParsedRequest, ModelEntry], Awaitable[RunReader]]
Hearing = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Heard:
    """The messages with text in place of sound, and what that took."""

    messages: tuple[Any, ...]
    usage: dict[str, Any]
    """`model`, `seconds`, `input_tokens` and `output_tokens` of all transcripts together."""


async def sounds_heard(
    parsed: ParsedRequest, model: ModelEntry, caller: Caller, start: Start, hearing: Hearing, budget: MediaBudget
) -> Heard | None:
    """Return the messages as the model is to read them; None if they have no sound, or the model takes it as it is.

    `start` begins a run of the transcriber, within `hearing`. `budget`: of the request's media. Raises ApiError that
    names the part.
    """
    places = list(_sounds(parsed.messages)) if model.transcriber else []
    if not places or AUDIO in await modalities_live(model):
        return None
    most = settings.LIGHTCONE_MEDIA_LIMITS.max_media_items
    if len(places) > most:
        path = _path(*places[most][:3])
        raise ApiError("invalid_value", f"{path} is one sound more than the limit of {most} in a request", path)
    transcriber = await model_transcriber(model, caller)
    if transcriber is None:
        path = _path(*places[0][:3])
        message = (
            f"{path} cannot be used: {model.full_name} has sound written down by {model.transcriber}, which this key "
            "may not use; send text, or have the model allowed"
        )
        raise ApiError("unsupported_parameter", message, path)
    texts: dict[tuple[int, int], str] = {}
    usages = []
    for index, place, kind, part in places:
        _check_sent(part, kind, _path(index, place, kind), model)
    for number, (index, place, kind, part) in enumerate(places, 1):
        path = _path(index, place, kind)
        data = await _data(part.get(kind), kind, path, caller, budget)
        speech = Speech(data, param=path)
        with hearing():
            text, usage = await _written(_request(parsed.delivery, transcriber, speech), transcriber, start)
        texts[index, place] = f'Sound {number}, written down by {transcriber.full_name}:\n"{text}"'
        usages.append(usage)
    return Heard(tuple(_replaced(parsed.messages, texts)), _together(transcriber, usages))


def _request(delivery: DeliveryOptions, transcriber: ModelEntry, speech: Speech) -> ParsedRequest:
    further = DeliveryOptions(
        priority=delivery.priority, service_tier=delivery.service_tier, timeout_s=delivery.timeout_s, is_further=True
    )
    generation = GenerationParams(task=Task.TRANSCRIBE, speech=speech)
    return ParsedRequest(model=transcriber.full_name, generation=generation, delivery=further)


async def _written(parsed: ParsedRequest, transcriber: ModelEntry, start: Start) -> tuple[str, Usage]:
    """Run the transcriber to its end; return the text and the counts. Raises ApiError."""
    reader = await start(parsed, transcriber)
    pieces, usage = [], Usage()
    try:
        await admission_await(reader, model=transcriber.name, timeout_s=settings.LIGHTCONE_QUEUE_TIMEOUT_S)
        async for event in reader:
            payload = event.payload
            if isinstance(payload, SegmentSpoken):
                pieces.append(payload.text)
            elif isinstance(payload, Failed):
                raise EngineError(payload.code, payload.message, payload.param)
            elif isinstance(payload, Completed):
                if payload.outcome != Outcome.FINISHED:
                    raise ApiError("inference_timeout", "The sound was not written down in time; send less of it.")
                usage = payload.usage
    except EngineError as error:
        if error.param == "model":
            message = f"{transcriber.full_name} does not write down speech; have another transcriber set"
            raise ApiError("invalid_value", message, parsed.generation.speech.param) from None  # type: ignore[union-attr]
        raise engine_api_error(error) from None
    finally:
        reader.leave()
    return "".join(pieces).strip(), usage


def _check_sent(part: dict[str, Any], kind: str, path: str, model: ModelEntry) -> None:
    """Raise ApiError for a sound that has a `uuid` alone: only for models that hear is one kept under it."""
    if part.get(kind) is None and part.get("uuid") is not None:
        place = f"{path.removesuffix(kind)}uuid"
        message = (
            f"{place} cannot be used alone: {model.full_name} has sound written down by {model.transcriber}, which "
            "knows no names; send the sound itself, or use a model that hears"
        )
        raise ApiError("unsupported_parameter", message, place)


async def _data(sound: Any, kind: str, path: str, caller: Caller, budget: MediaBudget) -> str:
    """Return the base64 of a part, whose bytes are of the request's budget. Raises ApiError."""
    name = "data" if kind == INPUT_AUDIO else "url"
    value = sound.get(name) if isinstance(sound, dict) else sound
    if not isinstance(value, str) or not value:
        code = "missing_required_parameter" if value is None else "invalid_type"
        raise ApiError(code, f"{path} must be an object with {name}, the sound in base64", path)
    limits = settings.LIGHTCONE_MEDIA_LIMITS
    if kind == AUDIO_URL and REMOTE.match(value):
        may_fetch, may_keep = caller.has_right(str(Right.MEDIA_FETCH)), not caller.stores_nothing
        asked = MediaRequest(MediaKind.AUDIO, f"{path}.url", caller.tenant, may_fetch, may_keep)
        return base64.b64encode((await media_fetcher().fetch(value, asked, budget)).data).decode("ascii")
    head = DATA_URL.match(value[:HEAD_CHARS])
    if kind == AUDIO_URL and head is None:
        message = f"{path}.url must be of the form data:audio/wav;base64,DATA, got {echo(value[:ECHO_CHARS])}"
        raise ApiError("invalid_value", message, f"{path}.url")
    data = value if head is None else value[head.end() :]
    num_bytes = int(len(data) * BYTES_OF_BASE64)
    if num_bytes > limits.max_media_bytes + 2:
        raise ApiError("invalid_value", f"{path} must have at most {limits.max_media_bytes} bytes; send less", path)
    budget.take(max(num_bytes - 2, 0), path)
    return data


def _sounds(messages: Sequence[Any]) -> Iterator[tuple[int, int, str, dict[str, Any]]]:
    """Yield the parts that are sound: the places of message and part, the kind, and the part."""
    for index, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict):
                kind = part_type(part)
                if kind in (INPUT_AUDIO, AUDIO_URL):
                    yield index, place, kind, part


def _replaced(messages: Sequence[Any], texts: dict[tuple[int, int], str]) -> Iterator[Any]:
    for index, message in enumerate(messages):
        if not any(index == one for one, _ in texts):
            yield message
            continue
        parts = [
            {"type": "text", "text": texts[index, place]} if (index, place) in texts else part
            for place, part in enumerate(message["content"])
        ]
        yield {**message, "content": parts}


def _together(transcriber: ModelEntry, usages: Sequence[Usage]) -> dict[str, Any]:
    return {
        "model": transcriber.full_name,
        "seconds": round(sum(usage.audio_seconds for usage in usages), 3),
        "input_tokens": sum(usage.prompt_tokens for usage in usages),
        "output_tokens": sum(usage.completion_tokens for usage in usages),
    }


def _path(index: int, place: int, kind: str) -> str:
    return f"messages.{index}.content.{place}.{kind}"
