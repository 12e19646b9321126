"""Takes the images out of messages: templates see that there is one, the encoder gets what the processor made of it.

Web processes pass image parts on undecoded: `{"type": "image", "data": base64, "detail", "param"}`. One killable child
decodes them (media/decoder.py), another makes inputs of the pixels (engine/media/image_inputs.py). The text that stands
for an image, hundreds of tokens that are all alike, takes the place of the template's placeholder, as in the processors
of transformers.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from engine.api.errors import EngineFailure, ErrorCode, ModelLoadError, RequestError
from engine.api.media import MediaLimits
from engine.api.request import Json, Message
from engine.inputs.escaping import PromptPiece
from engine.inputs.media.decoded import DecodedBudget
from engine.inputs.media_options import image_background, processor_options
from engine.killable import KillableExceeded, KillablePool
from engine.messages import DefineMedia, MediaSpan, MediaTensor
from engine.slow_work import SlowWork

TARGET = "engine.media.image_inputs:answer"
OPEN, PREPARE = "open", "prepare"
"""The tasks of the child."""
POOL_SIZE = 2
MEMORY_BYTES = 2 << 30
NICENESS = 5
PREPARE_S = 30.0
"""For all images of a request together."""


@dataclass(frozen=True, slots=True)
class ImageInput:
    """An image of a request, ready for the encoder. `tensors` are its inputs; `key` stands for content and tenant."""

    text: str
    num_vectors: int
    tensors: list[MediaTensor]
    key: str
    is_whole: bool = False
    """Its tokens see each other in both directions."""


@dataclass(frozen=True, slots=True)
class _Use:
    """What the images of a request share."""

    tenant: str
    num_images: int
    deadline: float
    budget: DecodedBudget
    options: dict[str, Json]
    """Of the processor."""
    background: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class PromptMedia:
    """The media of a prompt: each item once, and the spans of tokens that they stand in."""

    definitions: tuple[DefineMedia, ...] = ()
    spans: tuple[MediaSpan, ...] = ()


class ImageReader:
    """The reader of the images of requests to one model. Thread-safe."""

    def __init__(self, path: Path, work: SlowWork, limits: MediaLimits) -> None:
        """Start a child, which says what the model's processor writes for an image. Raises ModelLoadError."""
        from engine.inputs.media.decoder import MediaDecoder  # noqa: PLC0415  # with numpy, for models that see only

        self._path = str(path)
        first = (OPEN, self._path)
        self._decoder = MediaDecoder(work, limits)
        self._pool = KillablePool(TARGET, POOL_SIZE, MEMORY_BYTES, first, niceness=NICENESS, work=work)
        try:
            opened = self._pool.call(*first, timeout_s=PREPARE_S)
        except (EngineFailure, KillableExceeded, RequestError) as error:
            self.close()
            raise ModelLoadError(f"{path}: the processor of its images cannot be opened; the log says why") from error
        self.placeholder: str = opened["placeholder"]
        self.token_id: int = opened["token_id"]
        self._is_whole: bool = opened["is_whole"]
        self._options: dict[str, list[Any]] = opened["options"]

    def read(
        self, messages: list[Message], tenant: str, options: Mapping[str, Any]
    ) -> tuple[list[Message], list[ImageInput]]:
        """Return the messages with images that hold nothing any more, and what they held, in order.

        `options`: `PromptOptions.media_options`, which are checked whether or not there are images. Raises RequestError
        that names the part or the option, and EngineUnavailable.
        """
        chosen, background = processor_options(options, self._options), image_background(options)
        num_images = sum(1 for message in messages for part in _parts(message) if _is_image(part))
        if not num_images:
            return messages, []
        deadline, budget = time.monotonic() + PREPARE_S, DecodedBudget(self._decoder.limits)
        use = _Use(tenant, num_images, deadline, budget, chosen, background)
        emptied, images = [], []
        for message in messages:
            parts: list[Json] = []
            for part in _parts(message):
                if _is_image(part):
                    images.append(self._prepared(part, use))
                    part = {"type": "image"}
                parts.append(part)
            emptied.append(message | {"content": parts} if parts else message)
        return emptied, images

    def close(self) -> None:
        """End the child processes. Idempotent."""
        self._pool.close()
        self._decoder.close()

    def _prepared(self, part: Any, use: _Use) -> ImageInput:
        param, detail = part.get("param") or "messages", part.get("detail") or "auto"
        try:
            data = base64.b64decode(part["data"], validate=True)
        except (binascii.Error, ValueError):
            raise _refused("the image must be base64 behind the head of its data: URL", param) from None
        tenant = use.tenant
        image = self._decoder.image(data, param=param, detail=detail, background=use.background, tenant=tenant)
        use.budget.take(image.pixels.nbytes, param)
        pixels = (image.pixels.tobytes(), image.height, image.width, image.content_hash, use.num_images, use.options)
        timeout_s = max(0.1, use.deadline - time.monotonic())
        try:
            made = self._pool.call(PREPARE, self._path, *pixels, timeout_s=timeout_s, tenant=tenant)
        except RequestError as error:
            raise _refused(error.message, param) from error
        except KillableExceeded as error:
            limit = f"{PREPARE_S:g} s" if error.reason == "time" else f"{MEMORY_BYTES >> 20} MiB"
            message = f"the images take more than {limit} to prepare; send fewer or smaller ones"
            raise _refused(message, param) from error
        except EngineFailure as error:
            raise _refused("the model's processor cannot read the image; send another form of it", param) from error
        tensors = [MediaTensor(*tensor) for tensor in made["tensors"]]
        key = sha256(f"{made['key']} {tenant}".encode()).hexdigest()
        return ImageInput(made["text"], made["num_vectors"], tensors, key, self._is_whole)


def refuse_images(messages: list[Message], options: Mapping[str, Any]) -> None:
    """Raise RequestError for the first image or option of media, of a model that takes none."""
    for name in options:
        raise _refused("this model takes no images, so there are no options of them", name)
    for message in messages:
        for part in _parts(message):
            if isinstance(part, dict) and _is_image(part):
                param = part.get("param")
                raise _refused("this model takes no images", param if isinstance(param, str) else "messages")


def with_placeholders(messages: list[Message], placeholder: str) -> list[Message]:
    """Return messages whose images say what a template without parts is to write for them."""
    image: Json = {"type": "image", "placeholder": placeholder}
    return [
        message | {"content": [image if _is_image(part) else part for part in parts]}
        if any(map(_is_image, parts := _parts(message)))
        else message
        for message in messages
    ]


def with_images(pieces: list[PromptPiece], images: list[ImageInput], placeholder: str) -> list[PromptPiece]:
    """Return the pieces with the texts of the images in place of the template's placeholders. Raises RequestError."""
    texts, replaced, num_places = iter(images), list[PromptPiece](), 0
    for piece in pieces:
        if piece.is_typed or placeholder not in piece.text:
            replaced.append(piece)
            continue
        first, *others = piece.text.split(placeholder)
        num_places += len(others)
        for other in others:
            image = next(texts, None)
            first += (placeholder if image is None else image.text) + other
        replaced.append(PromptPiece(first))
    if num_places != len(images):
        raise _refused(
            f"the messages have {len(images)} images, but the prompt of the model's template has {num_places} places "
            f"for them; send images in messages of the user, and no {placeholder} of your own",
            "messages",
        )
    return replaced


def media_of(images: list[ImageInput], token_ids: list[int], token_id: int) -> PromptMedia:
    """Return the media of a prompt. `token_id`: of the tokens that get vectors.

    Raises RequestError if the prompt has been cut, and lacks tokens of an image.
    """
    places = [place for place, one in enumerate(token_ids) if one == token_id]
    if len(places) != sum(image.num_vectors for image in images):
        raise _refused(
            "the prompt has not all the tokens of its images; send it without truncate_prompt_tokens", "messages"
        )
    spans, position = list[MediaSpan](), 0
    for image in images:
        own = places[position : position + image.num_vectors]
        position += image.num_vectors
        first = 0
        for number in range(1, len(own) + 1):
            if number == len(own) or own[number] != own[number - 1] + 1:
                spans.append(MediaSpan(image.key, own[first], number - first, first, image.is_whole))
                first = number
    definitions = {image.key: DefineMedia(image.key, image.num_vectors, image.tensors) for image in images}
    return PromptMedia(tuple(definitions.values()), tuple(spans))


def _parts(message: Message) -> list[Json]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _is_image(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "image"


def _refused(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message, param)
