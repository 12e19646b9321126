"""The media of the core: what the encoder makes of images, kept by content while sequences need it, and for a while.

Sequences with media wait outside the scheduler until all of theirs are encoded (core/loop.py). The vectors of an item
are then inputs of its tokens like rows of the embedding. Items are encoded one at a time, in the order of arrival: on a
processor in a thread that gives way to the steps, as a tower takes seconds where a step takes milliseconds; on a device
between two steps.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch

from engine.api.errors import EngineFailure, ErrorCode
from engine.execution.device import has_lost_device
from engine.layers.embedding import EncodedMedia
from engine.messages import GIVEN, AddSequence, DefineMedia, MediaTensor
from engine.sequence import InputSpan, Sequence

logger = logging.getLogger(__name__)

NICENESS = 10
"""How much the thread gives way: a step's threads get nine tenths of the time."""
WAIT_S = 0.01
CACHE_BYTES = 256 << 20
"""Of vectors that no sequence needs at present."""


class MediaEncoder(Protocol):
    """The part of a model that reads media."""

    def encode(self, tensors: dict[str, torch.Tensor]) -> EncodedMedia:
        """Return the vectors of one item."""


@dataclass(slots=True, eq=False)
class _Item:
    """An item that was defined. It has its `tensors` until it is `encoded`, or until encoding has failed."""

    num_vectors: int
    tensors: list[MediaTensor]
    encoded: EncodedMedia | None = None
    has_failed: bool = False
    num_defined: int = 0
    """How often it was defined, less how often it was forgotten."""
    seq_ids: set[int] = field(default_factory=set)

    @property
    def is_done(self) -> bool:
        return self.encoded is not None or self.has_failed

    @property
    def num_bytes(self) -> int:
        return 0 if self.encoded is None else self.encoded.num_bytes


class _Encoding:
    """An item that is encoded in a thread of its own."""

    def __init__(self, key: str, item: _Item, encode: Callable[[_Item], EncodedMedia]) -> None:
        self.key, self.item = key, item
        self.result: EncodedMedia | None = None
        self.error: Exception | None = None
        self.is_over = threading.Event()
        threading.Thread(target=self._run, args=(encode,), name="media encoder", daemon=True).start()

    def _run(self, encode: Callable[[_Item], EncodedMedia]) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)  # threads that it starts have it too
        try:
            self.result = encode(self.item)
        except Exception as error:
            self.error = error
        self.is_over.set()


class CoreMedia:
    """The items of one core. The step loop calls this; a failure concerns one item and its sequences."""

    def __init__(
        self,
        encoder: MediaEncoder | None,
        cache_bytes: int = CACHE_BYTES,
        device: torch.device | str = "cpu",
        *,
        in_thread: bool = False,
    ) -> None:
        """`encoder`: None if the model takes no media; it takes vectors that are given all the same.

        `in_thread`: encode beside the steps, not between them.
        """
        self._encoder = encoder
        self._has_thread = in_thread
        self._encoding: _Encoding | None = None
        self._device = device
        self._cache_bytes = cache_bytes
        self._items: OrderedDict[str, _Item] = OrderedDict()
        """The one that was needed longest ago comes first."""
        self._waiting: OrderedDict[str, None] = OrderedDict()
        """Items to encode, in the order in which sequences have come that need them."""
        self._by_sequence: dict[int, list[str]] = {}

    def define(self, message: DefineMedia) -> None:
        """Take an item, unless it is known and has not failed."""
        item = self._items.get(message.key)
        if item is None:
            item = self._items[message.key] = _Item(message.num_vectors, message.tensors)
        elif item.has_failed and not item.seq_ids:
            item.tensors, item.has_failed = message.tensors, False
        item.num_defined += 1
        self._items.move_to_end(message.key)

    def forget(self, keys: list[str]) -> None:
        """Take back one definition of each item. Ignores unknown ones."""
        for key in keys:
            if key in self._items:
                self._items[key].num_defined -= 1
        self._trim()

    def expect(self, message: AddSequence) -> None:
        """Keep the items of a sequence, which is added later, until it is removed; and have them encoded."""
        if not message.media:
            return
        keys = self._by_sequence[message.seq_id] = list(dict.fromkeys(span.key for span in message.media))
        for key in keys:
            item = self._items.get(key)
            if item is not None:
                item.seq_ids.add(message.seq_id)
                if not item.is_done:
                    self._waiting[key] = None

    def is_ready(self, message: AddSequence) -> bool:
        """Return True if a sequence can be added at once: its items are encoded, or never will be."""
        return all(span.key not in self._waiting for span in message.media)

    @property
    def next_seq_ids(self) -> list[int]:
        """The sequences that need the item which is encoded now, or next; none if none waits."""
        key = next(iter(self._waiting), None)
        return [] if key is None else sorted(self._items[key].seq_ids)

    @property
    def is_encoding(self) -> bool:
        """A thread encodes an item."""
        return self._encoding is not None

    def wait(self) -> None:
        """Wait a moment for the thread."""
        if self._encoding is not None:
            self._encoding.is_over.wait(WAIT_S)

    def encode_next(self) -> bool:
        """Go on with the item that has waited longest; True if one is encoded, or has failed, since the last call.

        Raises EngineFailure if the device is lost.
        """
        has_ended = False
        if self._encoding is not None:
            if not self._encoding.is_over.is_set():
                return False
            ended, self._encoding = self._encoding, None
            self._end(ended.key, ended.item, ended.result, ended.error)
            has_ended = True
        key = next(iter(self._waiting), None)
        if key is None:
            return has_ended
        item = self._items[key]
        if self._has_thread:
            self._encoding = _Encoding(key, item, self._encode)
            return has_ended
        try:
            self._end(key, item, self._encode(item), None)
        except Exception as error:
            self._end(key, item, None, error)
        return True

    @torch.inference_mode()
    def _encode(self, item: _Item) -> EncodedMedia:
        """Return what the encoder makes of an item. Raises any error of it."""
        encoded = self._encoded({tensor.name: as_tensor(tensor) for tensor in item.tensors})
        if len(encoded.vectors) != item.num_vectors or not encoded.vectors.isfinite().all():
            raise ValueError(
                f"{len(encoded.vectors)} vectors for {item.num_vectors} tokens, or numbers that are not finite"
            )
        return encoded

    def _end(self, key: str, item: _Item, encoded: EncodedMedia | None, error: Exception | None) -> None:
        """Keep what was made of an item, unless it was forgotten. Raises EngineFailure if the device is lost."""
        if self._items.get(key) is item:
            self._waiting.pop(key, None)
        item.encoded, item.has_failed, item.tensors = encoded, error is not None, []
        if error is not None:
            logger.error("an item of media cannot be encoded", exc_info=error)
            if has_lost_device(error):
                message = "the device has failed and computes nothing more in this process"
                raise EngineFailure(ErrorCode.ENGINE_ERROR, message) from error

    def _encoded(self, tensors: dict[str, torch.Tensor]) -> EncodedMedia:
        if GIVEN in tensors:
            return EncodedMedia(tensors[GIVEN].to(self._device))
        if self._encoder is None:
            raise ValueError("the model has no encoder of media")
        return self._encoder.encode(tensors)

    def add(self, sequence: Sequence) -> None:
        """Give a sequence the inputs of its media. Raises EngineFailure if one is unknown or could not be encoded."""
        spans, shift = [], 0
        for span in sequence.request.media:
            item = self._items.get(span.key)
            encoded = None if item is None else item.encoded
            if encoded is None or span.first + span.length > len(encoded.vectors):
                raise EngineFailure(ErrorCode.ENGINE_ERROR, "an item of media is unknown to the core, or has failed")
            part, places = slice(span.first, span.first + span.length), None
            deep = None if encoded.deep is None else encoded.deep[:, part]
            if encoded.places is not None:
                places = encoded.places[:, part] + (span.start + shift)
                shift = int(places.max()) + 1 - span.start - span.length
            spans.append(InputSpan(span.start, span.start + span.length, encoded.vectors[part], places, deep, shift))
        sequence.inputs = tuple(spans)
        sequence.shift = shift
        sequence.inputs_end = max((span.end for span in spans), default=0)

    def remove(self, seq_id: int) -> None:
        """Forget a sequence that has ended. Ignores unknown ids."""
        for key in self._by_sequence.pop(seq_id, ()):
            item = self._items.get(key)
            if item is not None:
                item.seq_ids.discard(seq_id)
                if not item.seq_ids:
                    self._waiting.pop(key, None)
        self._trim()

    def _trim(self) -> None:
        """Drop what nobody needs and is not encoded, and of the rest what was needed longest ago."""
        free = [(key, item) for key, item in self._items.items() if item.num_defined <= 0 and not item.seq_ids]
        num_bytes = sum(item.num_bytes for _, item in free)
        for key, item in free:
            if item.encoded is None or num_bytes > self._cache_bytes:
                num_bytes -= item.num_bytes
                del self._items[key]


def as_tensor(tensor: MediaTensor) -> torch.Tensor:
    """Return an input of the encoder as a tensor on the CPU."""
    return torch.frombuffer(bytearray(tensor.data), dtype=getattr(torch, tensor.dtype)).reshape(tensor.shape)
