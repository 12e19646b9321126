"""Calls of the child processes that have a model's own processors, within the time that all media of a request have."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from engine.api.errors import EngineFailure, ErrorCode, ModelLoadError, RequestError
from engine.killable import KillableExceeded, KillablePool
from engine.slow_work import SlowWork

POOL_SIZE = 2
MEMORY_BYTES = 2 << 30
NICENESS = 5
PREPARE_S = 30.0
"""For all media of a request together."""
PLURALS = {"image": "images", "video": "videos", "audio": "sounds"}
"""What kinds of media are called, several of them."""


class ProcessorChild:
    """The children of one target, which open what a folder says of a kind of media."""

    def __init__(self, target: str, opening: tuple[Any, ...], work: SlowWork) -> None:
        """`opening`: the task that opens, and what says of which folder: tasks have that, too."""
        _, *self._folder = self._opening = opening
        self._pool = KillablePool(target, POOL_SIZE, MEMORY_BYTES, opening, niceness=NICENESS, work=work)

    def open(self, path: Path, kind: str) -> dict[str, Any]:
        """Return what the child says of the folder. Raises ModelLoadError."""
        try:
            opened: dict[str, Any] = self._pool.call(*self._opening, timeout_s=PREPARE_S)
        except RequestError as error:
            raise ModelLoadError(error.message) from error
        except (EngineFailure, KillableExceeded) as error:
            message = f"{path}: the processor of its {PLURALS[kind]} cannot be opened; the log says why"
            raise ModelLoadError(message) from error
        return opened

    def make(
        self, task: str, arguments: tuple[Any, ...], *, kind: str, param: str, deadline: float, tenant: str
    ) -> dict[str, Any]:
        """Have the child make inputs of an item. Raises RequestError that names `param`, and EngineUnavailable.

        `deadline`: on the clock of time.monotonic.
        """
        timeout_s, plural = max(0.1, deadline - time.monotonic()), PLURALS[kind]
        try:
            made: dict[str, Any] = self._pool.call(task, *self._folder, *arguments, timeout_s=timeout_s, tenant=tenant)
        except RequestError as error:
            raise _refused(error.message, param) from error
        except KillableExceeded as error:
            limit = f"{PREPARE_S:g} s" if error.reason == "time" else f"{MEMORY_BYTES >> 20} MiB"
            message = f"the {plural} take more than {limit} to prepare; send fewer or smaller ones"
            raise _refused(message, param) from error
        except EngineFailure as error:
            message = f"the model's processor cannot read the {kind}; send another form of it"
            raise _refused(message, param) from error
        return made

    def close(self) -> None:
        """End the processes. Idempotent."""
        self._pool.close()


def _refused(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message, param)
