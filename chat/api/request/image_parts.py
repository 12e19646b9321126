"""Read the image parts of messages. Nothing is decoded here: base64 goes on to the worker."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.conf import settings

from chat.api.request.fields import echo
from chat.api.request.named_files import AttachedFiles, file_named
from chat.errors import ApiError, Problems
from engine.api import Json
from engine.api.media import MediaKind
from engine.api.media_formats import HEAD_BYTES, formats_of, media_format

IMAGE = "image"
"""The word for images among the modalities of a model."""
IMAGE_URL, IMAGE_EMBEDS = "image_url", "image_embeds"
MEDIA_PARTS = (IMAGE_URL, "input_audio", "audio_url", "video_url", IMAGE_EMBEDS, "audio_embeds")
"""The types of parts that hold media. A part without a type has that of the medium in it."""
BYTES_OF_BASE64 = 3 / 4
DATA_URL = re.compile(r"data:([^,;]*)(?:;[^,;]*)*;base64,", re.IGNORECASE)
"""The head of a data: URL with base64; the group is its type."""
REMOTE = re.compile(r"https?://", re.IGNORECASE)
HEAD_CHARS = 1024
"""The longest head of a data URL."""
DETAILS = ("auto", "low", "high")
ECHO_CHARS = 60
MAX_NAME_CHARS = 256
MAX_NAMES = 10


@dataclass(frozen=True, slots=True)
class MediaRules:
    """What becomes of the media of a request."""

    is_taken: bool = False
    """The model sees."""
    seeing: Sequence[str] = ()
    """The caller's models that see, for a refusal."""
    fetched: Mapping[str, bytes | ApiError] = field(default_factory=dict)
    """The remote images, or why there is none, by their addresses."""
    named: Mapping[str, bytes] = field(default_factory=dict)
    """Those that were sent before, or elsewhere in the request, by their `uuid`."""
    embeds_problem: str = "cannot be used; send the image"
    """Why vectors in place of media are refused; empty: they are taken."""
    takes_videos: bool = False
    watching: Sequence[str] = ()
    """The caller's models that take videos, for a refusal."""
    fetched_videos: Mapping[str, bytes | ApiError] = field(default_factory=dict)
    named_videos: Mapping[str, bytes] = field(default_factory=dict)
    num_other_bytes: int = 0
    """Of other media of the request."""
    takes_sounds: bool = False
    hearing: Sequence[str] = ()
    """The caller's models that take sound, by themselves or by a transcriber."""
    hearing_itself: Sequence[str] = ()
    """Those that need no transcriber."""
    fetched_sounds: Mapping[str, bytes | ApiError] = field(default_factory=dict)
    named_sounds: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def takes(self) -> str:
        """Say what the model takes, for the refusal of something else."""
        kinds = " and ".join(name for name, is_taken in self.taken.items() if is_taken)
        return f"takes text and {kinds}" if kinds else "is not a multimodal model"

    @property
    def taken(self) -> dict[str, bool]:
        """Whether the model takes each kind of media, by its plural."""
        return {"images": self.is_taken, "videos": self.takes_videos, "sound": self.takes_sounds}

    @property
    def takes_media(self) -> bool:
        return self.is_taken or self.takes_videos or self.takes_sounds

    @property
    def num_fetched_bytes(self) -> int:
        maps = (
            *(self.fetched, self.named, self.fetched_videos, self.named_videos),
            *(self.fetched_sounds, self.named_sounds),
        )
        return sum(len(each) for found in maps for each in found.values() if isinstance(each, bytes))


class ImagePartReader:
    """Reads the images of all messages of one request; counts media of all kinds and their bytes."""

    def __init__(self, problems: Problems, rules: MediaRules, model: str, files: AttachedFiles) -> None:
        self._problems = problems
        self._rules = rules
        self._model = model
        self._files = files
        self._nums = Counter[str]()
        self._num_bytes = rules.num_other_bytes

    def read(self, image: Any, path: str, uuid: Any = None) -> list[Json]:
        """Return the part for the worker, with the path for its errors; nothing after a problem.

        `image`, and its `uuid` beside it: as sent.
        """
        url, detail = image_url(image), image.get("detail") if isinstance(image, dict) else None
        is_file = isinstance(image, dict) and image.get("file_id") is not None
        if not self.is_one_more(f"{path}.file_id" if is_file else path, IMAGE, "images", self._rules.seeing):
            return []
        if is_file:
            return self._of_file(image, path, uuid)
        if uuid is not None and not is_name(uuid):
            refuse_name(self._problems, uuid, f"{path.removesuffix(IMAGE_URL)}uuid")
        elif url is None and uuid is not None:
            return self._named(uuid, path, detail)
        elif not isinstance(url, str) or not url:
            message = "must be an object with url, the image as a data: URL with base64"
            self._problems.refuse(path, message, "missing_required_parameter" if url is None else "invalid_type")
        elif not self._is_detail(detail, path):
            return []
        elif isinstance(found := self._rules.fetched.get(url), ApiError):
            self._problems.refuse(f"{path}.url", found.message, found.code)
        elif (data := base64_of(url, self._rules.fetched)) is None:
            message = f"must have a url of the form data:image/png;base64,DATA, got {echo(url[:ECHO_CHARS])}"
            self._problems.refuse(f"{path}.url", message)
        elif self.has_room(data, path, IMAGE):
            return [_image_part(data, detail, path)]
        return []

    def read_vectors(self, vectors: Any, path: str) -> list[Json]:
        """Return the part of vectors in place of an image; nothing after a problem."""
        if isinstance(vectors, dict) and list(vectors) == [IMAGE_EMBEDS]:
            vectors = vectors[IMAGE_EMBEDS]
        if not self.is_one_more(path, IMAGE, "images", self._rules.seeing):
            return []
        return self.vectors_part(vectors, path, IMAGE, IMAGE)

    def vectors_part(self, vectors: Any, path: str, kind: str, noun: str) -> list[Json]:
        """Return the part of vectors in place of an item of a kind; nothing after a problem. `noun`: for errors."""
        if self._rules.embeds_problem:
            self._problems.refuse(path, self._rules.embeds_problem, "unsupported_parameter")
        elif not isinstance(vectors, str):
            message = f"must be a string, the vectors as base64 of a .npy or safetensors file; got {echo(vectors)}"
            self._problems.refuse(path, message, "invalid_type")
        elif self.has_room(vectors, path, noun):
            return [{"type": kind, "data": vectors, "is_vectors": True, "param": path}]
        return []

    def is_one_more(self, path: str, noun: str, plural: str, others: Sequence[str]) -> bool:
        """Count an item of media by its noun; refuse it if the model takes none, or no more.

        `others`: models that could take it.
        """
        if not self._rules.taken[plural]:
            names = ", ".join(others[:MAX_NAMES])
            choice = f"use a model that takes {plural}: {names}" if names else "choose another model"
            message = f"cannot be used: {self._model} {self._rules.takes}; send text, or {choice}"
            self._problems.refuse(path, message, "unsupported_parameter")
            return False
        most = settings.LIGHTCONE_MEDIA_LIMITS.max_media_items
        self._nums[noun] += 1
        if self._nums[noun] > most:
            self._problems.refuse(path, f"is one {noun} more than the limit of {most} in a request")
            return False
        return True

    def _is_detail(self, detail: Any, path: str) -> bool:
        """Return True for a `detail` that there is, and None; refuse others."""
        if detail in (None, *DETAILS):
            return True
        self._problems.refuse(f"{path}.detail", f"must be one of {', '.join(DETAILS)}, got {echo(detail)}")
        return False

    def _of_file(self, image: dict[str, Any], path: str, uuid: Any) -> list[Json]:
        """Return the part of an image that the project keeps as a file."""
        file_id, place, detail = image["file_id"], f"{path}.file_id", image.get("detail")
        if image.get("url") is not None:
            self._problems.refuse(path, "must have url or file_id; leave the other out")
        elif uuid is not None:
            message = "cannot be used here; leave it out: file_id names the image"
            self._problems.refuse(f"{path.removesuffix(IMAGE_URL)}uuid", message)
        elif not self._is_detail(detail, path) or (
            (found := file_named(file_id, self._files, place, self._problems)) is None
        ):
            return []
        elif not _is_image(found.file_data):
            message = f"must be the id of an image: {formats_of(MediaKind.IMAGE)}; send another file as a file part"
            self._problems.refuse(place, message)
        elif self.has_room(found.file_data, place, IMAGE):
            return [_image_part(found.file_data, detail, place)]
        return []

    def _named(self, name: str, path: str, detail: str | None) -> list[Json]:
        """Return the part of an image that was sent before."""
        found, place = self._rules.named.get(name), f"{path.removesuffix(IMAGE_URL)}uuid"
        if found is None:
            message = f"names no image that is kept: {echo(name)}; send the image with its uuid again"
            self._problems.refuse(place, message)
            return []
        data = base64.b64encode(found).decode()
        return [_image_part(data, detail, place)] if self.has_room(data, place, IMAGE) else []

    def has_room(self, data: str, path: str, kind: str) -> bool:
        """Count the bytes of an item of media; refuse it if it has too many, or all have."""
        limits, num_bytes = settings.LIGHTCONE_MEDIA_LIMITS, int(len(data) * BYTES_OF_BASE64)
        self._num_bytes += num_bytes
        if num_bytes > limits.max_media_bytes + 2:
            self._problems.refuse(path, f"must have at most {limits.max_media_bytes} bytes; send a smaller {kind}")
        elif self._num_bytes > limits.max_media_request_bytes:
            message = f"brings the media of the request above {limits.max_media_request_bytes} bytes; send fewer"
            self._problems.refuse(path, message)
        else:
            return True
        return False


def _image_part(data: str, detail: str | None, path: str) -> Json:
    return {"type": "image", "data": data, "detail": detail or "auto", "param": path}


def _is_image(data: str) -> bool:
    """Return True if base64 begins as an image does."""
    found = media_format(base64.b64decode(data[: (HEAD_BYTES + 2) // 3 * 4]))
    return found is not None and MediaKind.IMAGE in found.kinds


def is_name(value: object) -> bool:
    """Return True for what may be a `uuid`."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARS


def refuse_name(problems: Problems, uuid: Any, place: str) -> None:
    """Refuse what can be no `uuid`."""
    message = f"must be a string of 1 to {MAX_NAME_CHARS} characters, got {echo(uuid)}"
    problems.refuse(place, message, "invalid_type")


def base64_of(url: str, fetched: Mapping[str, bytes | ApiError]) -> str | None:
    """Return the bytes of an image, as they were fetched or as the address has them; None if it has none."""
    if isinstance(found := fetched.get(url), bytes):
        return base64.b64encode(found).decode()
    head = DATA_URL.match(url[:HEAD_CHARS])
    return None if head is None else url[head.end() :]


def image_url(image: Any) -> Any:
    """Return the address of an image as it was sent: in an object, or bare."""
    return image.get("url") if isinstance(image, dict) else image


class SentMedia(NamedTuple):
    """An image or video of a message as it was sent."""

    value: Any
    uuid: Any


def part_type(part: dict[str, Any]) -> Any:
    """Return the type of a part: as it says, else of the medium that it has; None if it has none."""
    kind = part.get("type")
    return next((word for word in MEDIA_PARTS if word in part), None) if kind is None else kind


def media_sent(messages: Sequence[Any], name: str) -> Iterator[SentMedia]:
    """Yield what the parts of messages of type `name` hold."""
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part_type(part) == name:
                yield SentMedia(part.get(name), part.get("uuid"))
