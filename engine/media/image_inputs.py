"""The inputs of a model's image encoder, by its files' processor, and the text that stands for an image.

Child processes run this module (engine.inputs.images), so that workers need not import torch and transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import Idefics3Processor
from transformers.utils import logging as transformers_logging

from engine.api.errors import ErrorCode, ModelLoadError, RequestError
from engine.media.anyres import onevision
from engine.media.model_files import ModelFiles, open_files
from engine.media.options import OPTIONS, Form
from engine.media.phi_images import PhiImages
from engine.media.qwen_images import cap_pixels, pixel_options, sized
from engine.media.qwen_videos import AROUND, QwenVideos
from engine.media.qwen_videos import TOKEN as VIDEO_TOKEN

OPEN, PREPARE, PREPARE_VIDEO = "open", "prepare", "prepare_video"
SMALL = (64, 48)
"""An image of several rows of tokens, in pixels."""
PHI = "phi4_multimodal"
QWEN_KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
NO_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets")
"""What a processor makes of the text."""
NO_ENCODER = ("rows", "cols", "num_patches", "num_crops")
"""What an image processor says for the text alone."""

transformers_logging.set_verbosity_error()
_opened: dict[tuple[str, str, int], Opened] = {}
"""What this process has opened, by its path and the choice of a projector."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A processor of images. `prepare` returns the text that stands for an image, and the inputs of the encoder."""

    placeholder: str
    """What a template writes for an image."""
    token_id: int
    """Of tokens that get vectors."""
    count: Callable[[str], int]
    """Returns how many tokens of a text do."""
    prepare: Callable[[Image.Image, int, dict[str, Any]], tuple[str, dict[str, Any]]]
    """Takes an image, how many images its prompt has, and options of the processor."""
    is_whole: bool = False
    """Tokens of an image see each other in both directions."""
    options: Mapping[str, Form] = field(default_factory=dict)
    """What requests may set, and what it may be."""
    token: str = ""
    """The text of `token_id`."""
    plain: tuple[str, str] | None = None
    """What stands around the tokens of a small image; None if something stands between them, or they have places."""
    videos: QwenVideos | None = None
    video_token_id: int = 0


def answer(
    task: str,
    path: str,
    projector: str,
    most_tokens: int,
    pixels: bytes = b"",
    height: int = 0,
    width: int = 0,
    digest: str = "",
    num_images: int = 1,
    options: dict[str, Any] | None = None,
    times: Sequence[float] = (),
    seconds: float = 0.0,
) -> dict[str, Any]:
    """Do one task of the process: open the processor of a model, or prepare an image. Raises RequestError.

    `projector`: the choice of `EngineConfig`. `most_tokens`: of an image, for models that leave its size open. OPEN
    returns the fields of `Opened` that are plain, and those of a `video`, if the model takes some. PREPARE takes an
    image of RGB bytes and their `digest`, how many images its prompt has, and checked options; PREPARE_VIDEO a video, a
    frame for each of `times`. It returns the `text` that takes the place of the placeholder, how many of its tokens get
    vectors, the encoder's `tensors` (name, dtype, shape, bytes), and a `key` that stands for it all.
    """
    place = (path, projector, most_tokens)
    if place not in _opened:
        try:
            _opened[place] = open_processor(Path(path), most_tokens, projector)
        except ModelLoadError as error:
            raise RequestError(ErrorCode.INVALID_VALUE, error.message) from error
    opened = _opened[place]
    if task == OPEN:
        names = ("placeholder", "token_id", "is_whole", "token", "plain")
        plain = {name: getattr(opened, name) for name in names}
        return {**plain, "options": dict(opened.options), "video": _video_form(opened)}
    array, options = np.frombuffer(pixels, np.uint8), options or {}
    try:
        if task == PREPARE_VIDEO and opened.videos is not None:
            frames = array.reshape(len(times), height, width, 3)
            text, num_vectors, made = opened.videos.prepare(frames, tuple(times), seconds, options)
            digest = f"{digest} {seconds}"
        else:
            text, made = opened.prepare(Image.fromarray(array.reshape(height, width, 3)), num_images, options)
            num_vectors = opened.count(text)
    except (ValueError, ZeroDivisionError) as error:
        what = "video" if times else "image"
        message = f"the model's processor takes no {what} of {width} x {height} pixels; send one of another shape"
        raise RequestError(ErrorCode.INVALID_VALUE, message) from error
    tensors = []
    for name, value in made.items():
        tensor = torch.as_tensor(value).contiguous()
        kind = str(tensor.dtype).removeprefix("torch.")
        tensors.append((name, kind, list(tensor.shape), tensor.numpy().tobytes()))
    chosen = json.dumps(options, sort_keys=True) if options else ""
    key = sha256(f"{digest} {text} {chosen}".encode()).hexdigest()
    return {"text": text, "num_vectors": num_vectors, "tensors": tensors, "key": key}


def _video_form(opened: Opened) -> dict[str, Any] | None:
    """Say what a template writes for a video, and how many frames of which size are taken (engine.inputs.videos)."""
    videos = opened.videos
    if videos is None:
        return None
    return {
        "placeholder": VIDEO_TOKEN,
        "token_id": opened.video_token_id,
        "around": AROUND if videos.has_times else ("", ""),
        "fps": videos.fps,
        "min_frames": videos.min_frames,
        "max_frames": videos.max_frames,
        "frame_pixels": videos.frame_pixels,
    }


def open_processor(path: Path, most_tokens: int, projector: str = "") -> Opened:
    """Open the processor of a model. Raises ModelLoadError for a pair of GGUF files that do not go together.

    Those of transformers that read videos too, and Pixtral's, need torchvision, whose wheels do not load beside a torch
    without CUDA. Of these only the image processor is used, and the text is written here.
    """
    files = open_files(path, projector)
    config = files.config
    opened = _phi(path, files, most_tokens) if config.model_type == PHI else _open(files, config, most_tokens)
    return replace(
        opened,
        placeholder=files.placeholder or opened.placeholder,
        is_whole=config.model_type == "gemma3",
        options=opened.options or OPTIONS.get(config.model_type, {}),
        plain=None if config.model_type in QWEN_KINDS else _around_tokens(opened),
    )


def _around_tokens(opened: Opened) -> tuple[str, str] | None:
    text, _ = opened.prepare(Image.new("RGB", SMALL), 1, {})
    before, token, rest = text.partition(opened.token)
    while rest.startswith(token):
        rest = rest.removeprefix(token)
    return None if token in rest else (before, rest)


def _open(files: ModelFiles, config: Any, most_tokens: int) -> Opened:
    kind = "pixtral" if config.vision_config.model_type == "pixtral" else config.model_type
    if kind not in ("smolvlm", "pixtral", "internvl", "llava_onevision", *QWEN_KINDS):
        return _whole(files.processor)
    images, tokenizer = files.images, files.tokenizer
    if kind in QWEN_KINDS:
        merge = config.vision_config.spatial_merge_size
        cap_pixels(images, most_tokens)
        opened = _spelled(sized(images), tokenizer, "<|image_pad|>", lambda made: _qwen_text(made, merge))
        videos, token_id = (
            QwenVideos.read(files.videos, config, images, most_tokens),
            int(tokenizer.convert_tokens_to_ids(VIDEO_TOKEN)),
        )
        return replace(opened, options=pixel_options(images), videos=videos, video_token_id=token_id)
    if kind == "smolvlm":
        side, patch = config.vision_config.image_size, config.vision_config.patch_size
        return _whole(Idefics3Processor(images, tokenizer, image_seq_len=(side // patch // config.scale_factor) ** 2))
    if kind == "pixtral":
        side = config.vision_config.patch_size * getattr(config, "spatial_merge_size", 1)
        images.patch_size = {"height": side, "width": side}
        opened = _spelled(images, tokenizer, "[IMG]", lambda made: _pixtral_text(made, side))
        return replace(opened, options={"size": ["longest_edge", side, images.size["longest_edge"]]})
    if kind == "llava_onevision":
        token_id = int(tokenizer.convert_tokens_to_ids("<image>"))
        prepare = onevision(images, "<image>", config)
        return Opened("<image>", token_id, _counter(tokenizer, token_id), prepare, token="<image>")
    length = config.image_seq_length
    return _spelled(images, tokenizer, "<IMG_CONTEXT>", lambda made: _internvl_text(made, length))


def _phi(path: Path, files: ModelFiles, most_tokens: int) -> Opened:
    tokenizer, config = files.tokenizer, files.config
    token_id = int(config.vision_config.image_token_id)
    token = tokenizer.convert_ids_to_tokens(token_id)
    images = PhiImages.read(path, config, token, most_tokens)
    return Opened(
        *(token, token_id, _counter(tokenizer, token_id), images.prepare), options=images.options, token=token
    )


def _whole(processor: Any) -> Opened:
    """Use a processor that writes the text itself."""
    token_id = int(processor.image_token_ids[0])  # `image_token_id` may be what stands before the image's own

    def prepare(image: Image.Image, _num_images: int, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        made = processor(
            images=[image],
            text=[processor.image_token],
            return_text_replacement_offsets=True,
            add_special_tokens=False,
            return_tensors="pt",
            **options,
        )
        (place,) = made["text_replacement_offsets"][0]
        return place["replacement"], {name: value for name, value in made.items() if name not in NO_INPUTS + NO_ENCODER}

    tokenizer = processor.tokenizer
    token = tokenizer.convert_ids_to_tokens(token_id)
    return Opened(processor.image_token, token_id, _counter(tokenizer, token_id), prepare, token=token)


def _spelled(images: Any, tokenizer: Any, token: str, text_of: Callable[[Any], str]) -> Opened:
    """Use an image processor, and the text that `text_of` writes of what it has made."""
    token_id = int(tokenizer.convert_tokens_to_ids(token))

    def prepare(image: Image.Image, _num_images: int, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        made = images(images=[image], return_tensors="pt", **options)
        return text_of(made), {name: value for name, value in made.items() if name not in NO_ENCODER}

    return Opened(token, token_id, _counter(tokenizer, token_id), prepare, token=token)


def _counter(tokenizer: Any, token_id: int) -> Callable[[str], int]:
    return lambda text: tokenizer(text, add_special_tokens=False)["input_ids"].count(token_id)


def _pixtral_text(made: Any, side: int) -> str:
    """Write a token for each square of `side` pixels, row by row."""
    height, width = (int(number) for number in made["image_sizes"][0])
    rows = ["[IMG]" * (width // side)] * (height // side)
    return "[IMG_BREAK]".join(rows) + "[IMG_END]"


def _qwen_text(made: Any, merge: int) -> str:
    """Write a token for each square of `merge` x `merge` patches; the template has its own around them."""
    return "<|image_pad|>" * (int(made["image_grid_thw"][0].prod()) // merge**2)


def _internvl_text(made: Any, length: int) -> str:
    """Write `length` tokens for each tile."""
    return f"<img>{'<IMG_CONTEXT>' * length * int(made['num_patches'][0])}</img>"
