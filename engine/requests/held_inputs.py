"""What encoders get of the media of unfinished requests: held in the worker, and in the core until they are encoded.

The worker keeps them for a core that takes over, so what it counts bounds both. A project may hold as much as it leaves
free, so that another one always finds room.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque

from engine.api.errors import EngineUnavailable, ErrorCode
from engine.inputs.images import PromptMedia


class HeldInputs:
    """The bytes of inputs that the requests to one model hold together. Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._by_tenant = Counter[str]()
        self._released = deque[tuple[str, int]]()
        """What is not yet taken off: garbage is collected at any place, also while a request is counted."""
        self._changed = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """What all requests hold."""
        with self._changed:
            return self._settled()

    def hold(self, media: PromptMedia, tenant: str) -> None:
        """Count the inputs of a prompt until nothing has its media any more. Raises EngineUnavailable.

        A request is taken, however large, if there is no other.
        """
        num_bytes = sum(len(tensor.data) for item in media.definitions for tensor in item.tensors)
        if not num_bytes:
            return
        with self._changed:
            held = self._settled()
            if held and self._by_tenant[tenant] + num_bytes > self._most_bytes - held - num_bytes:
                raise EngineUnavailable(ErrorCode.OVERLOADED, self._refusal())
            self._by_tenant[tenant] += num_bytes
        weakref.finalize(media, self._released.append, (tenant, num_bytes))

    def _refusal(self) -> str:
        return (
            f"the media of unfinished requests take what this project may have of the {self._most_bytes >> 20} MiB for "
            "them; try again later, with fewer or smaller ones, or the operator may raise "
            "LIGHTCONE_MAX_ENCODER_INPUT_BYTES"
        )

    def _settled(self) -> int:
        """Take off what has been released, and return what is left. The caller has the lock."""
        while self._released:
            tenant, num_bytes = self._released.popleft()
            self._by_tenant[tenant] -= num_bytes
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]
        return self._by_tenant.total()
