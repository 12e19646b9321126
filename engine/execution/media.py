"""The media of the core: what the encoder makes of images, kept by content while sequences need it, and for a while.

Sequences with media wait outside the scheduler until all of theirs are encoded (core/loop.py). The vectors of an item
are then inputs of its tokens like rows of the embedding. Tenants take turns, and items of one form are encoded together
up to a budget of tokens (scheduling/encoder_queue.py): on a processor in a thread that alternates with the steps
(encoder_gate.py), as a tower takes seconds where a step takes milliseconds; on a device between two steps.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch

from engine.api.errors import EngineFailure, ErrorCode
from engine.execution.device import has_lost_device
from engine.execution.encoder_gate import EncoderGate
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.layers.embedding import EncodedMedia
from engine.messages import GIVEN, AddSequence, DefineMedia, MediaTensor
from engine.scheduling.encoder_queue import EncoderQueue, WaitingItem
from engine.sequence import InputSpan, Sequence

logger = logging.getLogger(__name__)

NICENESS = 10
"""How much the thread gives way where both compute: a step's threads get nine tenths of the time."""
WAIT_S = 0.01
CACHE_BYTES = 256 << 20
"""Of vectors that no sequence needs at present."""


class MediaEncoder(Protocol):
    """The part of a model that reads media."""

    def encode(self, tensors: dict[str, torch.Tensor]) -> EncodedMedia:
        """Return the vectors of one item."""


@runtime_checkable
class PausingEncoder(MediaEncoder, Protocol):
    """A MediaEncoder that can be held up while it computes."""

    def call_between_parts(self, call: Callable[[], None]) -> None:
        """Have this called before each part of the model, on the thread that encodes."""


@runtime_checkable
class BatchEncoder(MediaEncoder, Protocol):
    """A MediaEncoder that reads several items at once."""

    def form_of(self, tensors: list[MediaTensor]) -> Hashable | None:
        """Return what items have in common that are encoded together; None: this one is encoded alone."""

    def encode_together(self, items: list[dict[str, torch.Tensor]], counts: list[int]) -> list[EncodedMedia]:
        """Return the vectors of items of one form. `counts`: how many each has."""

    def cut(self, tensors: dict[str, torch.Tensor], count: int, most: int) -> list[dict[str, torch.Tensor]]:
        """Cut the inputs of an item of `count` vectors into parts of about `most`, as far as they are independent."""


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

    def inputs(self) -> dict[str, torch.Tensor]:
        """Return the inputs of the encoder."""
        return {tensor.name: as_tensor(tensor) for tensor in self.tensors}

    @property
    def num_bytes(self) -> int:
        return 0 if self.encoded is None else self.encoded.num_bytes


Batch = list[tuple[str, _Item]]
"""Items that are encoded together, with their keys."""
Encoded = EncodedMedia | Exception


class _Encoding:
    """Items that are encoded in a thread of their own."""

    def __init__(self, batch: Batch, encode: Callable[[Batch], list[Encoded]], gate: EncoderGate) -> None:
        self.batch = batch
        self._gate = gate
        gate.begin()
        self.results: list[Encoded] = []
        threading.Thread(target=self._run, args=(encode,), name="media encoder", daemon=True).start()

    def _run(self, encode: Callable[[Batch], list[Encoded]]) -> None:
        with contextlib.suppress(OSError):
            own = threading.get_native_id()
            niceness = os.getpriority(os.PRIO_PROCESS, own) + NICENESS
            os.setpriority(os.PRIO_PROCESS, own, niceness)  # threads that it starts have it too
        try:
            with KERNEL_THREADS.shared_with_torch():
                self.results = encode(self.batch)
        finally:
            self._gate.end()


class CoreMedia:
    """The items of one core. The step loop calls this; a failure concerns one item and its sequences."""

    def __init__(
        self,
        encoder: MediaEncoder | None,
        cache_bytes: int = CACHE_BYTES,
        device: torch.device | str = "cpu",
        *,
        in_thread: bool = False,
        max_tokens: int = 1,
    ) -> None:
        """`encoder`: None if the model takes no media; it takes vectors that are given all the same.

        `in_thread`: encode beside the steps, not between them. `max_tokens`: of items that are encoded together.
        """
        self._encoder = encoder
        self._has_thread = in_thread
        self._encoding: _Encoding | None = None
        self._gate = EncoderGate()
        if in_thread and isinstance(encoder, PausingEncoder):
            encoder.call_between_parts(self._gate.pass_through)
        self._device = device
        self._cache_bytes = cache_bytes
        self._items: OrderedDict[str, _Item] = OrderedDict()
        """The one that was needed longest ago comes first."""
        self._max_tokens = max_tokens
        self._queue = EncoderQueue(max_tokens)
        """The items to encode, and those that are being encoded."""
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
                    self._queue.add(self._waiting(key, item, message))

    def _waiting(self, key: str, item: _Item, message: AddSequence) -> WaitingItem:
        """Return an item as it waits for a sequence. What need not be encoded takes no time of its tenant."""
        if any(tensor.name == GIVEN for tensor in item.tensors):
            return WaitingItem(key, message.tenant, message.priority, 0)
        form = self._encoder.form_of(item.tensors) if isinstance(self._encoder, BatchEncoder) else None
        return WaitingItem(key, message.tenant, message.priority, item.num_vectors, form)

    def is_ready(self, message: AddSequence) -> bool:
        """Return True if a sequence can be added at once: its items are encoded, or never will be."""
        return all(span.key not in self._queue for span in message.media)

    @property
    def next_seq_ids(self) -> list[int]:
        """The sequences that need the items which are encoded now, or next; none if none waits."""
        if self._encoding is not None:
            items = [item for _, item in self._encoding.batch]
        else:
            items = [self._items[key] for key in self._queue.next()]
        return sorted(set().union(*(item.seq_ids for item in items)))

    @property
    def is_encoding(self) -> bool:
        """A thread encodes items."""
        return self._encoding is not None

    def wait(self) -> None:
        """Let the thread compute for a moment, as no step can be computed."""
        if self._encoding is not None:
            self._gate.wait(WAIT_S)

    def compute_beside(self, step_s: float) -> None:
        """Give the thread its share after a step that took so long."""
        if self._encoding is not None:
            self._gate.compute_beside(step_s)

    def close(self) -> None:
        """Let the thread end by itself."""
        self._gate.open()

    def end_encoded(self) -> bool:
        """Take what the thread has made; False if there is nothing new. Raises EngineFailure if the device is lost."""
        if self._encoding is None or not self._gate.is_over:
            return False
        ended, self._encoding = self._encoding, None
        self._end(ended.batch, ended.results)
        return True

    def encode_next(self) -> bool:
        """Go on with the items whose turn it is; True if some are encoded, or have failed, since the last call.

        Raises EngineFailure if the device is lost.
        """
        has_ended = self.end_encoded()
        keys = [] if self._encoding is not None else self._queue.next()
        if not keys:
            return has_ended
        self._queue.begin(keys)
        batch = [(key, self._items[key]) for key in keys]
        if self._has_thread:
            self._encoding = _Encoding(batch, self._encode, self._gate)
            return has_ended
        self._end(batch, self._encode(batch))
        return True

    @torch.inference_mode()
    def _encode(self, batch: Batch) -> list[Encoded]:
        """Return what the encoder makes of items, or why it cannot: each alone, if they cannot be encoded together."""
        items = [item for _, item in batch]
        if len(items) > 1 and isinstance(self._encoder, BatchEncoder):
            try:
                counts = [item.num_vectors for item in items]
                together = self._encoder.encode_together([item.inputs() for item in items], counts)
                return [_checked(item, encoded) for item, encoded in zip(items, together, strict=True)]
            except Exception as error:
                if has_lost_device(error):
                    return [error] * len(items)
                logger.warning("%d items of media are encoded one by one, as together they fail: %s", len(items), error)
        return [self._encode_alone(item) for item in items]

    def _encode_alone(self, item: _Item) -> Encoded:
        try:
            return _checked(item, self._encoded(item.inputs(), item.num_vectors))
        except Exception as error:
            return error

    def _end(self, batch: Batch, results: list[Encoded]) -> None:
        """Keep what was made of items, unless they were forgotten. Raises EngineFailure if the device is lost."""
        for (key, item), result in zip(batch, results, strict=True):
            if self._items.get(key) is item:
                self._queue.remove(key)
            item.tensors = []
            if isinstance(result, EncodedMedia):
                item.encoded = result
                continue
            item.has_failed = True
            logger.error("an item of media cannot be encoded", exc_info=result)
            if has_lost_device(result):
                message = "the device has failed and computes nothing more in this process"
                raise EngineFailure(ErrorCode.ENGINE_ERROR, message) from result

    def _encoded(self, tensors: dict[str, torch.Tensor], count: int) -> EncodedMedia:
        """Return the vectors of one item. A large one is encoded in parts, if its encoder can."""
        if GIVEN in tensors:
            return EncodedMedia(tensors[GIVEN].to(self._device))
        if self._encoder is None:
            raise ValueError("the model has no encoder of media")
        if isinstance(self._encoder, BatchEncoder):
            parts = self._encoder.cut(tensors, count, self._max_tokens)
            if len(parts) > 1:
                return EncodedMedia(torch.cat([self._encoder.encode(part).vectors for part in parts]))
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
                    self._queue.remove(key)
        self._trim()

    def _trim(self) -> None:
        """Drop what nobody needs and is not encoded, and of the rest what was needed longest ago."""
        free = [(key, item) for key, item in self._items.items() if item.num_defined <= 0 and not item.seq_ids]
        num_bytes = sum(item.num_bytes for _, item in free)
        for key, item in free:
            if item.encoded is None or num_bytes > self._cache_bytes:
                num_bytes -= item.num_bytes
                del self._items[key]


def _checked(item: _Item, encoded: EncodedMedia) -> Encoded:
    """Return the vectors of an item, or what is wrong with them."""
    if len(encoded.vectors) == item.num_vectors and encoded.vectors.isfinite().all():
        return encoded
    return ValueError(f"{len(encoded.vectors)} vectors for {item.num_vectors} tokens, or numbers that are not finite")


def as_tensor(tensor: MediaTensor) -> torch.Tensor:
    """Return an input of the encoder as a tensor on the CPU."""
    return torch.frombuffer(bytearray(tensor.data), dtype=getattr(torch, tensor.dtype)).reshape(tensor.shape)
