"""Read the parts of messages that are sound. Nothing is decoded here: base64 goes on to the worker."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from chat.api.request.fields import echo
from chat.api.request.image_parts import (
    DATA_URL,
    ECHO_CHARS,
    HEAD_CHARS,
    ImagePartReader,
    MediaRules,
    SentMedia,
    base64_of,
    image_url,
    is_name,
    media_sent,
    refuse_name,
)
from chat.errors import ApiError, Problems
from engine.api import Json

AUDIO = "audio"
"""The word for sound among the modalities of a model."""
INPUT_AUDIO, AUDIO_URL, AUDIO_EMBEDS = "input_audio", "audio_url", "audio_embeds"
SOUND = "sound"


class AudioPartReader:
    """Reads the sounds of all messages of one request; counts them. `images`: which counts the bytes of all media."""

    def __init__(self, problems: Problems, rules: MediaRules, images: ImagePartReader) -> None:
        self._problems = problems
        self._rules = rules
        self._images = images

    def read(self, kind: str, sound: Any, path: str, uuid: Any = None) -> list[Json]:
        """Return the part for the worker, with the path for its errors; nothing after a problem.

        `kind`: INPUT_AUDIO or AUDIO_URL. `sound`, and its `uuid` beside it: as sent.
        """
        place, name = f"{path.removesuffix(kind)}uuid", "data" if kind == INPUT_AUDIO else "url"
        value = sound.get(name) if isinstance(sound, dict) else sound
        is_named = value is None and uuid is not None
        others = self._rules.hearing_itself if is_named else self._rules.hearing
        if not self._images.is_one_more(path, SOUND, SOUND, others):
            return []
        if uuid is not None and not is_name(uuid):
            refuse_name(self._problems, uuid, place)
        elif is_named:
            return self._named(uuid, place)
        elif not isinstance(value, str) or not value:
            code = "missing_required_parameter" if value is None else "invalid_type"
            self._problems.refuse(path, f"must be an object with {name}, the sound in base64", code)
        elif kind == INPUT_AUDIO:
            head = DATA_URL.match(value[:HEAD_CHARS])
            return self._part(value if head is None else value[head.end() :], path)
        elif isinstance(found := self._rules.fetched_sounds.get(value), ApiError):
            self._problems.refuse(f"{path}.url", found.message, found.code)
        elif (data := base64_of(value, self._rules.fetched_sounds)) is None:
            message = f"must have a url of the form data:audio/wav;base64,DATA, got {echo(value[:ECHO_CHARS])}"
            self._problems.refuse(f"{path}.url", message)
        else:
            return self._part(data, path)
        return []

    def read_vectors(self, vectors: Any, path: str) -> list[Json]:
        """Return the part of vectors in place of a sound; nothing after a problem."""
        if isinstance(vectors, dict) and list(vectors) == [AUDIO_EMBEDS]:
            vectors = vectors[AUDIO_EMBEDS]
        if not self._images.is_one_more(path, SOUND, SOUND, self._rules.hearing_itself):
            return []
        return self._images.vectors_part(vectors, path, AUDIO, SOUND)

    def _named(self, name: str, place: str) -> list[Json]:
        """Return the part of a sound that was sent before."""
        found = self._rules.named_sounds.get(name)
        if found is None:
            message = f"names no sound that is kept: {echo(name)}; send the sound with its uuid again"
            self._problems.refuse(place, message)
            return []
        return self._part(base64.b64encode(found).decode(), place)

    def _part(self, data: str, path: str) -> list[Json]:
        return [{"type": AUDIO, "data": data, "param": path}] if self._images.has_room(data, path, SOUND) else []


def sounds_sent(messages: Sequence[Any]) -> Iterator[SentMedia]:
    """Yield the sounds of messages as images are sent: what has a name as an address, data: if it is in base64."""
    for sound in media_sent(messages, AUDIO_URL):
        yield SentMedia(image_url(sound.value), sound.uuid)
    for sound in media_sent(messages, INPUT_AUDIO):
        data = sound.value.get("data") if isinstance(sound.value, dict) else sound.value
        if not isinstance(data, str) or not is_name(sound.uuid):
            yield SentMedia(None, sound.uuid)
        else:
            yield SentMedia(data if DATA_URL.match(data[:HEAD_CHARS]) else f"data:;base64,{data}", sound.uuid)
