"""Takes media out of messages: templates see that there is an item, the encoder gets what is made of it.

Web processes pass the parts on undecoded: `{"type": "image", "data": base64, "detail", "param"}`, videos as videos.py
has them, and sounds as message_sounds.py has; pages of files have bytes as `data`. One killable child decodes them
(media/decoder.py), another makes inputs of the pixels (engine/media/image_inputs.py). The text that stands for an
image, hundreds of tokens that are all alike, takes the place of the template's placeholder, as in the processors of
transformers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeGuard

from engine.api.errors import ErrorCode, RequestError
from engine.api.media import MediaLimits
from engine.api.request import Json, Message
from engine.inputs.escaping import PromptPiece
from engine.inputs.media.decoded import DecodedBudget
from engine.inputs.media_options import image_background, processor_options, video_decoding
from engine.inputs.message_sounds import MessageSounds
from engine.inputs.processor_child import PLURALS, PREPARE_S, ProcessorChild
from engine.inputs.sent_tensors import read_matrix
from engine.inputs.videos import VideoFrames, bytes_of
from engine.messages import GIVEN, DefineMedia, MediaSpan, MediaTensor
from engine.model_kind import ModelPurpose
from engine.slow_work import SlowWork

TARGET = "engine.media.image_inputs:answer"
MEDIA = ("image", "video", "audio")
"""The types of parts that hold media."""
OPEN, PREPARE, PREPARE_VIDEO = "open", "prepare", "prepare_video"
"""The tasks of the child."""
MOST_TOKENS_ON_CPU, MOST_TOKENS = 1280, 16_384
"""Of an image whose size the model leaves open: towers take seconds for a thousand tokens on a processor."""
MAX_VECTORS = 4096
"""Of an image or a sound, where they are sent."""


@dataclass(frozen=True, slots=True)
class MediaInput:
    """An image, a video or a sound of a request, ready for the encoder. `tensors` are its inputs; `key` stands for
    content and tenant.
    """

    text: str
    num_vectors: int
    tensors: list[MediaTensor]
    key: str
    form: MediaForm
    given: tuple[str, int] | None = None
    """The field and the width of vectors that were sent in place of the item."""


@dataclass(frozen=True, slots=True)
class MediaForm:
    """How a model's prompts have one kind of media: "image", "video" or "audio"."""

    kind: str
    placeholder: str
    """What a template writes for an item."""
    token_id: int
    """Of the tokens that get vectors."""
    around: tuple[str, str] = ("", "")
    """What goes away beside the placeholder, if it stands there."""
    is_whole: bool = False
    """Tokens of an item see each other in both directions."""
    is_text: bool = False
    """Templates know nothing of it: the placeholder is a part of the text."""

    @property
    def plural(self) -> str:
        return PLURALS[self.kind]


@dataclass(frozen=True, slots=True)
class _Use:
    """What the media of a request share."""

    tenant: str
    num_images: int
    deadline: float
    budget: DecodedBudget
    options: dict[str, Json]
    """Of the processor."""
    background: tuple[int, int, int]
    video: dict[str, Any]
    """Of decoding videos."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PromptMedia:
    """The media of a prompt: each item once, and the spans of tokens that they stand in."""

    definitions: tuple[DefineMedia, ...] = ()
    spans: tuple[MediaSpan, ...] = ()
    num_tokens: Mapping[str, int] = field(default_factory=dict)
    """By kind: how many tokens of the prompt its media are."""
    given: tuple[tuple[str, int], ...] = ()
    """The fields and the widths of vectors that were sent."""


class MediaReader:
    """The reader of the media of requests to one model. Thread-safe."""

    def __init__(
        self,
        path: Path,
        work: SlowWork,
        limits: MediaLimits,
        purpose: ModelPurpose,
        *,
        on_cpu: bool = True,
        projector: str = "",
    ) -> None:
        """Start children, which say what the model's processors write for an item. Raises ModelLoadError.

        `purpose`: says which media the model takes. `projector`: the choice of `EngineConfig`.
        """
        from engine.inputs.media.decoder import MediaDecoder  # noqa: PLC0415  # with numpy, for models of media only

        self._decoder = MediaDecoder(work, limits)
        self._child: ProcessorChild | None = None
        self._videos: VideoFrames | None = None
        self._sounds: MessageSounds | None = None
        self._options: dict[str, list[Any]] = {}
        self._token = ""
        self._plain: list[str] | None = None
        self._forms: dict[str, MediaForm] = {}
        try:
            if purpose.takes_images:
                most = limits.max_image_tokens or (MOST_TOKENS_ON_CPU if on_cpu else MOST_TOKENS)
                self._child = ProcessorChild(TARGET, (OPEN, str(path), projector, most), work)
                self._take_images(self._child.open(path, "image"))
            if purpose.takes_sounds:
                self._sounds = sounds = MessageSounds(path, work, self._decoder)
                self._forms["audio"] = MediaForm("audio", sounds.token, sounds.token_id, is_text=sounds.is_text)
        except BaseException:
            self.close()
            raise

    def _take_images(self, opened: dict[str, Any]) -> None:
        """Take what the child says of images and videos."""
        self._options, self._token, self._plain = opened["options"], opened["token"], opened["plain"]
        place = (opened["placeholder"], opened["token_id"])
        self._forms["image"] = MediaForm("image", *place, is_whole=opened["is_whole"])
        if (video := opened["video"]) is not None:
            self._videos = VideoFrames(self._decoder, video)
            around = tuple(video["around"])
            self._forms["video"] = MediaForm("video", video["placeholder"], video["token_id"], around)

    @property
    def forms(self) -> list[MediaForm]:
        """Of the media that the model takes."""
        return list(self._forms.values())

    def read(
        self, messages: list[Message], tenant: str, options: Mapping[str, Any], max_model_len: int
    ) -> tuple[list[Message], list[MediaInput]]:
        """Return the messages with media that hold nothing any more, and what they held, in order.

        No more is made of them than the context has room for.

        `options`: `PromptOptions.media_options`, which are checked whether or not there are media. Raises RequestError
        that names the part or the option, and EngineUnavailable.
        """
        taken = list(self._forms)
        chosen, background = processor_options(options, self._options), image_background(options, taken)
        video = video_decoding(options, self._decoder.limits)
        refuse_media(messages, tuple(kind for kind in MEDIA if kind not in taken))
        kinds = [part["type"] for message in messages for part in _parts(message) if _is_medium(part)]
        if not kinds:
            return messages, []
        num_images = kinds.count("image")
        deadline, budget = time.monotonic() + PREPARE_S, DecodedBudget(self._decoder.limits)
        use = _Use(tenant, num_images, deadline, budget, chosen, background, video)
        emptied, media = [], []
        for message in messages:
            parts: list[Json] = []
            for part in _parts(message):
                if _is_medium(part):
                    media.append(self._prepared(part, use))
                    _check_room(media, max_model_len)
                    part = {"type": part["type"]}
                parts.append(part)
            emptied.append(message | {"content": parts} if parts else message)
        return emptied, media

    @property
    def page_limits(self) -> MediaLimits | None:
        """The limits of pages of files as images; None if the model takes no images."""
        return self._decoder.limits if any(form.kind == "image" for form in self.forms) else None

    def close(self) -> None:
        """End the child processes. Idempotent."""
        for opened in (self._child, self._sounds, self._decoder):
            if opened is not None:
                opened.close()

    def _prepared(self, part: Any, use: _Use) -> MediaInput:
        kind, param = part["type"], part.get("param") or "messages"
        if part.get("is_vectors") is True:
            return self._given(part["data"], self._forms[kind], param, use.tenant)
        if kind == "video":
            return self._prepared_video(part, use, param)
        if kind == "audio":
            return self._prepared_sound(part, use, param)
        detail = part.get("detail") or "auto"
        data = bytes_of(part["data"], "image", param)
        image = self._decoder.image(data, param=param, detail=detail, background=use.background, tenant=use.tenant)
        use.budget.take(image.pixels.nbytes, param)
        return self._made(PREPARE, image.pixels, image.content_hash, self._forms["image"], use, param)

    def _given(self, data: str, form: MediaForm, param: str, tenant: str) -> MediaInput:
        """Return the vectors that were sent in place of an image or a sound."""
        token, plain = (self._token, self._plain) if form.kind == "image" else (form.placeholder, ["", ""])
        if plain is None:
            message = f"{param} cannot be used: images of this model are more than rows of vectors; send the image"
            raise _refused(message, param)
        sent = read_matrix(data, GIVEN, param)
        if sent.num_rows > MAX_VECTORS:
            raise _refused(f"{param} must have at most {MAX_VECTORS} rows, got {sent.num_rows}", param)
        before, after = plain
        key = sha256(f"{GIVEN} {sent.content_hash} {tenant}".encode()).hexdigest()
        text = before + token * sent.num_rows + after
        return MediaInput(text, sent.num_rows, [sent.tensor], key, form, (param, sent.width))

    def _prepared_sound(self, part: Any, use: _Use, param: str) -> MediaInput:
        assert self._sounds is not None
        made = self._sounds.read(part, param, tenant=use.tenant, deadline=use.deadline, budget=use.budget)
        return _input_of(made, self._forms["audio"], use, param)

    def _prepared_video(self, part: Any, use: _Use, param: str) -> MediaInput:
        assert self._videos is not None
        video = self._videos.read(part, use.video, param, use.tenant)
        use.budget.take(video.frames.nbytes, param)
        times = (list(video.times), video.seconds)
        form = self._forms["video"]
        return self._made(PREPARE_VIDEO, video.frames, video.content_hash, form, use, param, *times)

    def _made(
        self, task: str, pixels: Any, digest: str, form: MediaForm, use: _Use, param: str, *times: Any
    ) -> MediaInput:
        """Have the child make inputs of pixels (…, H, W, 3)."""
        height, width = pixels.shape[-3:-1]
        arguments = (pixels.tobytes(), height, width, digest, use.num_images, use.options, *times)
        assert self._child is not None
        made = self._child.make(task, arguments, kind=form.kind, param=param, deadline=use.deadline, tenant=use.tenant)
        return _input_of(made, form, use, param)


def _input_of(made: dict[str, Any], form: MediaForm, use: _Use, param: str) -> MediaInput:
    """Return what a child made of an item. Raises RequestError if it is beyond the budget."""
    tensors = [MediaTensor(*tensor) for tensor in made["tensors"]]
    use.budget.take(sum(len(tensor.data) for tensor in tensors), param)
    key = sha256(f"{made['key']} {use.tenant}".encode()).hexdigest()
    return MediaInput(made["text"], made["num_vectors"], tensors, key, form)


def _check_room(media: list[MediaInput], max_model_len: int) -> None:
    num_tokens = sum(item.num_vectors for item in media)
    if num_tokens > max_model_len:
        message = f"the media have {num_tokens} tokens or more, and the context {max_model_len}"
        raise RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, f"{message}; send fewer or smaller ones", "messages")


def refuse_options(options: Mapping[str, Any]) -> None:
    """Raise RequestError for the first option of media, of a model that takes none."""
    for name in options:
        raise _refused("this model takes no images, videos and sounds, so there are no options of them", name)


def refuse_media(messages: list[Message], kinds: tuple[str, ...]) -> None:
    """Raise RequestError for the first item of kinds that a model does not take."""
    for message in messages:
        for part in _parts(message):
            if isinstance(part, dict) and part.get("type") in kinds:
                param = part.get("param")
                what = f"this model takes no {PLURALS[str(part['type'])]}"
                raise _refused(what, param if isinstance(param, str) else "messages")


def with_placeholders(messages: list[Message], forms: list[MediaForm]) -> list[Message]:
    """Return messages whose media say what a template without parts is to write for them."""
    empty: dict[str, Json] = {
        form.kind: {"type": "text", "text": form.placeholder, "placeholder": form.placeholder}
        if form.is_text
        else {"type": form.kind, form.kind: "", "placeholder": form.placeholder}
        for form in forms
    }
    return [
        message | {"content": [empty[str(part["type"])] if _is_medium(part) else part for part in parts]}
        if any(map(_is_medium, parts := _parts(message)))
        else message
        for message in messages
    ]


def with_media(pieces: list[PromptPiece], media: list[MediaInput], forms: list[MediaForm]) -> list[PromptPiece]:
    """Return the pieces with the texts of the media in place of the template's placeholders. Raises RequestError."""
    replaced = pieces
    for form in forms:
        replaced = _with_texts(replaced, [item for item in media if item.form.kind == form.kind], form)
    return replaced


def _with_texts(pieces: list[PromptPiece], media: list[MediaInput], form: MediaForm) -> list[PromptPiece]:
    """Put in the texts of one kind of media. No text of one kind has the placeholder of another."""
    texts, replaced, num_places = iter(media), list[PromptPiece](), 0
    placeholder, (before, behind) = form.placeholder, form.around
    for piece in pieces:
        if piece.is_typed or placeholder not in piece.text:
            replaced.append(piece)
            continue
        first, *others = piece.text.split(placeholder)
        num_places += len(others)
        for other in others:
            item = next(texts, None)
            if item is not None and first.endswith(before) and other.startswith(behind):
                first, other = first.removesuffix(before), other.removeprefix(behind)
            first += (placeholder if item is None else item.text) + other
        replaced.append(PromptPiece(first))
    if num_places != len(media):
        raise _refused(
            f"the messages have {len(media)} {form.plural}, but the prompt of the model's template has {num_places} "
            f"places for them; send {form.plural} in messages of the user, and no {placeholder} of your own",
            "messages",
        )
    return replaced


def media_of(media: list[MediaInput], token_ids: list[int]) -> PromptMedia:
    """Return the media of a prompt. Raises RequestError if the prompt has been cut, and lacks tokens of an item."""
    spans = list[MediaSpan]()
    for token_id in {item.form.token_id for item in media}:
        spans += _spans([item for item in media if item.form.token_id == token_id], token_ids, token_id)
    definitions = {item.key: DefineMedia(item.key, item.num_vectors, item.tensors) for item in media}
    num_tokens = Counter[str]()
    for item in media:
        num_tokens[item.form.kind] += item.num_vectors
    in_order = tuple(sorted(spans, key=lambda span: span.start))
    given = tuple(item.given for item in media if item.given is not None)
    return PromptMedia(tuple(definitions.values()), in_order, num_tokens, given)


def _spans(media: list[MediaInput], token_ids: list[int], token_id: int) -> Iterator[MediaSpan]:
    """Yield the spans of the media whose tokens are `token_id`."""
    places = [place for place, one in enumerate(token_ids) if one == token_id]
    if len(places) != sum(item.num_vectors for item in media):
        raise _refused(
            f"the prompt has not all the tokens of its {media[0].form.plural}; send it without truncate_prompt_tokens",
            "messages",
        )
    position = 0
    for item in media:
        own = places[position : position + item.num_vectors]
        position += item.num_vectors
        first = 0
        for number in range(1, len(own) + 1):
            if number == len(own) or own[number] != own[number - 1] + 1:
                yield MediaSpan(item.key, own[first], number - first, first, item.form.is_whole)
                first = number


def _parts(message: Message) -> list[Json]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _is_medium(part: Json) -> TypeGuard[dict[str, Json]]:
    return isinstance(part, dict) and part.get("type") in MEDIA


def _refused(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message, param)
