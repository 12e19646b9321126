"""The adapters of the core: read in a background thread, held for as long as sequences use them.

Only sequences with an adapter cost anything. The step loop calls this; a failure concerns one adapter and its
sequences.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from engine.api.errors import EngineFailure, ErrorCode, ModelLoadError
from engine.execution.runner import ModelRunner
from engine.layers.adapters import MAX_ADAPTERS, Adapters, make_adapters
from engine.loading.adapter import load_adapter
from engine.loading.loader import LoadedModel
from engine.messages import IMAGE_ADAPTER, AdapterLoaded, AddAdapter
from engine.sequence import Sequence

logger = logging.getLogger(__name__)

WAIT_S = 0.01


@dataclass(slots=True, eq=False)
class _Held:
    """An adapter with its index in the tables. `loading` gives what `pack` made."""

    index: int
    loading: Future[Any]
    is_bound: bool = False
    is_forgotten: bool = False
    seq_ids: set[int] = field(default_factory=set)


class ImageAdapter(NamedTuple):
    """The adapter by which a model sees images, read with the model, and the adapters of which it is one."""

    adapters: Adapters
    packed: Any

    @classmethod
    def read(cls, path: Path, loaded: LoadedModel, dtype: torch.dtype) -> ImageAdapter:
        """Read it from its folder. Raises ModelLoadError."""
        adapters = make_adapters([target.size for target in loaded.adapter_targets], loaded.device, dtype)
        return cls(adapters, adapters.pack(load_adapter(path, loaded.adapter_targets)))


class CoreAdapters:
    """The adapters of one core. `send` takes an AdapterLoaded, from any thread."""

    def __init__(
        self,
        loaded: LoadedModel,
        runner: ModelRunner,
        dtype: torch.dtype,
        send: Callable[[AdapterLoaded], None],
        of_images: ImageAdapter | None = None,
    ) -> None:
        """`dtype`: of the matrices, float32 or bfloat16. `of_images` is held for as long as the core lives."""
        self._targets = loaded.adapter_targets
        self._runner = runner
        self._device = loaded.device
        self._dtype = dtype
        self._send = send
        self._loader = ThreadPoolExecutor(1, "adapter-loader")
        self._free = list(range(MAX_ADAPTERS, 0, -1))
        self._held: dict[int, _Held] = {}
        self._by_sequence: dict[int, int] = {}
        self._adapters: Adapters | None = None
        if of_images is not None:
            self._serve(of_images.adapters)
            held = _Held(self._free.pop(), Future(), is_bound=True)
            held.loading.set_result(of_images.packed)
            of_images.adapters.bind(held.index, of_images.packed)
            self._held[IMAGE_ADAPTER] = held

    def load(self, message: AddAdapter) -> None:
        """Read an adapter in the background, then send AdapterLoaded. One that is still held is kept."""
        held = self._held.get(message.adapter_id)
        if held is not None:
            held.is_forgotten = False
            return
        if not self._free:
            own = IMAGE_ADAPTER in self._held
            beside = " beside that of images" if own else ""
            most = MAX_ADAPTERS - own
            text = f"at most {most} adapters are served at once{beside}; remove one, and let its requests end"
            self._send(AdapterLoaded(message.adapter_id, text))
            return
        if self._adapters is None:
            sizes = [target.size for target in self._targets]
            self._serve(make_adapters(sizes, self._device, self._dtype))
        loading = self._loader.submit(self._read, message, self._adapters)
        self._held[message.adapter_id] = _Held(self._free.pop(), loading)

    def _serve(self, adapters: Adapters) -> None:
        self._adapters = adapters
        self._runner.serve_adapters(adapters)

    def forget(self, adapter_id: int) -> None:
        """Drop an adapter that no new sequence will name, once the sequences that have it have ended."""
        held = self._held.get(adapter_id)
        if held is not None:
            held.is_forgotten = True
            self._drop_unused(adapter_id, held)

    def expect(self, seq_id: int, adapter_id: int) -> None:
        """Hold an adapter for a sequence, which is added later, until it is removed. Ignores unknown adapters."""
        if adapter_id in self._held:
            self._held[adapter_id].seq_ids.add(seq_id)
            self._by_sequence[seq_id] = adapter_id

    def is_ready(self, adapter_id: int) -> bool:
        """Return True if a sequence with this adapter can be added at once: it is loaded, or never will be."""
        return adapter_id not in self._held or self._held[adapter_id].loading.done()

    def wait_for(self, adapter_ids: list[int]) -> None:
        """Wait a moment for one of these adapters to be loaded."""
        wait([self._held[adapter_id].loading for adapter_id in adapter_ids if adapter_id in self._held], WAIT_S)

    def add(self, sequence: Sequence) -> None:
        """Give a sequence the index of its adapter, if it has one. Raises if that is unknown or could not be loaded."""
        adapter_id = sequence.request.adapter_id
        if not adapter_id:
            return
        held = self._held.get(adapter_id)
        if held is None or self._adapters is None:
            raise EngineFailure(ErrorCode.ENGINE_ERROR, f"adapter {adapter_id} is unknown to the core")
        packed = held.loading.result()
        if not held.is_bound:
            self._adapters.bind(held.index, packed)
            held.is_bound = True
        sequence.adapter_index = held.index

    def remove(self, seq_id: int) -> None:
        """Forget a sequence that has ended. Ignores unknown ids."""
        adapter_id = self._by_sequence.pop(seq_id, 0)
        if adapter_id:
            held = self._held[adapter_id]
            held.seq_ids.discard(seq_id)
            self._drop_unused(adapter_id, held)

    def _drop_unused(self, adapter_id: int, held: _Held) -> None:
        """Free the index of a forgotten adapter without sequences.

        NOTE: rows of aborted sequences in a step in flight then have no adapter, or another one; nobody reads them.
        """
        if not held.is_forgotten or held.seq_ids:
            return
        if held.is_bound and self._adapters is not None:
            self._adapters.free(held.index)
        self._free.append(held.index)
        del self._held[adapter_id]

    def _read(self, message: AddAdapter, adapters: Adapters) -> Any:
        """Load and lay out an adapter, and send how that went; on the loader's thread."""
        try:
            weights = load_adapter(Path(message.path), self._targets)
            packed = adapters.pack(weights)
        except ModelLoadError as error:
            self._send(AdapterLoaded(message.adapter_id, error.message))
            raise
        except Exception:
            logger.exception("the adapter %s could not be loaded", message.path)
            self._send(
                AdapterLoaded(message.adapter_id, f"{message.path}: could not be loaded; the log has the details")
            )
            raise
        self._send(AdapterLoaded(message.adapter_id, "", weights.rank, list(weights.modules), packed.num_bytes))
        return packed
