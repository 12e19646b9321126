"""The adapters that an engine serves, by name: what the worker knows of them.

The core reads and holds them. An adapter that is removed stays there until the runs that name it have ended: these
carry its definition, so that another core gets it too.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path

from engine.api import AdapterInfo, ErrorCode, ModelLoadError, RequestError
from engine.api.errors import EngineUnavailable
from engine.messages import IMAGE_ADAPTER, AdapterLoaded, AddAdapter, RemoveAdapter

logger = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


class _Entry:
    """One adapter: how it is defined, and what the core has answered, if it has."""

    def __init__(self, definition: AddAdapter) -> None:
        self.definition = definition
        self.answer: AdapterLoaded | None = None

    @property
    def is_loaded(self) -> bool:
        return self.answer is not None and not self.answer.error

    def info(self) -> AdapterInfo:
        answer, definition = self.answer, self.definition
        assert answer is not None
        return AdapterInfo(definition.name, definition.path, answer.rank, tuple(answer.modules), answer.num_bytes)


class ServedAdapters:
    """The adapters of an engine. Thread-safe: `changed` guards them, whose lock must be reentrant."""

    def __init__(self, changed: threading.Condition, send: Callable[[AddAdapter | RemoveAdapter], None]) -> None:
        """`send` hands a message to the core; it does nothing while there is none."""
        self._changed = changed
        self._send = send
        self._by_name: dict[str, _Entry] = {}
        self._last_id = IMAGE_ADAPTER
        self._is_closed = False

    def add(self, name: str, path: Path) -> AdapterInfo:
        """Have the core load an adapter and wait for it. Raises RequestError, ModelLoadError or EngineUnavailable."""
        if not NAME.fullmatch(name):
            raise _refused(
                "adapter must have a name of 1 to 128 letters, digits and . _ / -, beginning with a letter or digit, "
                f"got {name[:140]!r}"
            )
        with self._changed:
            if name in self._by_name:
                raise _refused(f"adapter {name!r} exists already; remove it first, or take another name")
            self._last_id += 1
            entry = _Entry(AddAdapter(self._last_id, name, str(path.absolute())))
            self._by_name[name] = entry
            self._send(entry.definition)
            self._changed.wait_for(lambda: entry.answer is not None or self._is_closed)
            if entry.is_loaded:
                return entry.info()
            self._by_name.pop(name, None)
            self._send(RemoveAdapter(entry.definition.adapter_id))
        if entry.answer is None:
            raise EngineUnavailable(ErrorCode.OVERLOADED, "the engine has ended; the adapter was not loaded")
        raise ModelLoadError(entry.answer.error)

    def remove(self, name: str) -> None:
        """Take no more requests for an adapter; those that it has go on. Raises RequestError for an unknown name."""
        with self._changed:
            definition = self.find(name)
            del self._by_name[name]
            self._send(RemoveAdapter(definition.adapter_id))

    def listed(self) -> tuple[AdapterInfo, ...]:
        """Return the adapters that are loaded, in the order of their arrival."""
        with self._changed:
            return tuple(entry.info() for entry in self._by_name.values() if entry.is_loaded)

    def find(self, name: str) -> AddAdapter:
        """Return the definition of an adapter that is loaded. Raises RequestError.

        The error does not list the names: whoever asks may not be allowed to use all of them.
        """
        with self._changed:
            entry = self._by_name.get(name)
            if entry is None or not entry.is_loaded:
                raise _refused(f"adapter {name[:140]!r} is not loaded; add it to the model, or name another")
            return entry.definition

    def definition(self, used: AddAdapter | None) -> list[AddAdapter]:
        """Return what the core must be sent before the sequences of a run: an adapter that has been removed, again."""
        is_known = used is None or used.adapter_id == IMAGE_ADAPTER or self._is_served(used)
        return [] if used is None or is_known else [used]

    def removal(self, used: AddAdapter | None) -> list[RemoveAdapter]:
        """Return what the core must be sent behind the sequences of such a run."""
        return [RemoveAdapter(one.adapter_id) for one in self.definition(used)]

    def restart(self) -> list[AddAdapter]:
        """Return what another core must be sent. An adapter that the dead one was loading is given up."""
        with self._changed:
            for entry in self._by_name.values():
                if entry.answer is None:
                    text = "the engine's core ended before it had loaded the adapter; its log may tell why"
                    entry.answer = AdapterLoaded(entry.definition.adapter_id, text)
            self._changed.notify_all()
            return [entry.definition for entry in self._by_name.values() if entry.is_loaded]

    def take(self, answer: AdapterLoaded) -> None:
        """Take an answer of the core; one that cannot be loaded again after a restart is removed."""
        with self._changed:
            found = (item for item in self._by_name.items() if item[1].definition.adapter_id == answer.adapter_id)
            name, entry = next(found, ("", None))
            if entry is None:
                return
            if entry.answer is not None and answer.error:
                logger.error("the adapter %s is removed, as it could not be loaded again: %s", name, answer.error)
                del self._by_name[name]
                self._send(RemoveAdapter(answer.adapter_id))
            entry.answer = answer
            self._changed.notify_all()

    def close(self) -> None:
        """End the waiting of `add`, as no core will answer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _is_served(self, used: AddAdapter) -> bool:
        entry = self._by_name.get(used.name)
        return entry is not None and entry.definition is used


def _refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message, "adapter")
