"""The inputs of a model's image encoder, by the processor of its folder, and the text that stands for an image.

Child processes run this module (engine.inputs.images), as pictures come from strangers.
"""

from __future__ import annotations

import base64
import binascii
import io
from hashlib import sha256
from typing import Any

import torch
from PIL import Image
from transformers import AutoProcessor

from engine.api.errors import ErrorCode, RequestError

OPEN, PREPARE = "open", "prepare"
LOW_SIDE = 512
"""`detail: low` shrinks the longer side to so many pixels."""
NO_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets")
"""What a processor makes of the text."""

_opened: dict[str, Any] = {}
"""The processor of this process, by its folder."""


def answer(task: str, path: str, data: str = "", detail: str = "auto") -> dict[str, Any]:
    """Do one task of the process: open the processor of a folder, or prepare an image. Raises RequestError.

    OPEN returns the `placeholder` that a template writes for an image, and the `token_id` of tokens that get vectors.
    PREPARE takes an image in base64. It returns the `text` that takes the place of the placeholder, how many of its
    tokens get vectors, the encoder's `tensors` (name, dtype, shape, bytes), and a `digest` of these.
    """
    if path not in _opened:
        _opened[path] = AutoProcessor.from_pretrained(path)
    processor = _opened[path]
    if task == OPEN:
        return {"placeholder": processor.image_token, "token_id": int(processor.image_token_id)}
    return prepare(processor, image_open(data, detail))


def prepare(processor: Any, image: Image.Image) -> dict[str, Any]:
    """Return text, tensors and digest of an image. Raises RequestError."""
    try:
        made = processor(
            images=[image],
            text=[processor.image_token],
            return_text_replacement_offsets=True,
            add_special_tokens=False,
            return_tensors="pt",
        )
    except (ValueError, ZeroDivisionError) as error:
        raise _refused(f"the model's processor takes no image of {image.width}x{image.height} pixels") from error
    (place,) = made["text_replacement_offsets"][0]
    digest = sha256(place["replacement"].encode())
    tensors = []
    for name, value in made.items():
        if name in NO_INPUTS:
            continue
        tensor = torch.as_tensor(value)
        content = tensor.contiguous().numpy().tobytes()
        tensors.append((name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), content))
        digest.update(repr((name, *tensors[-1][1:3])).encode())
        digest.update(content)
    num_vectors = int((made["input_ids"] == processor.image_token_id).sum())
    return {
        "text": place["replacement"],
        "num_vectors": num_vectors,
        "tensors": tensors,
        "digest": digest.digest(),
    }


def image_open(data: str, detail: str) -> Image.Image:
    """Return the image of a base64 text. Raises RequestError."""
    try:
        image = Image.open(io.BytesIO(base64.b64decode(data, validate=True))).convert("RGB")
    except (binascii.Error, ValueError, OSError) as error:
        raise _refused("the image cannot be read") from error
    if detail == "low" and max(image.size) > LOW_SIDE:
        image.thumbnail((LOW_SIDE, LOW_SIDE))
    return image


def _refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message)
