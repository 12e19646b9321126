"""What encoders get of the media of unfinished requests: held in the worker, and in the core until they are encoded.

The worker keeps them for a core that takes over, so what it counts bounds both. A project may hold as much as it leaves
free, so that another one always finds room.
"""

from __future__ import annotations

import threading
import weakref

from engine.api.errors import EngineUnavailable, ErrorCode
from engine.inputs.images import PromptMedia


class HeldInputs:
    """The bytes of inputs that the requests to one model hold together. Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.num_bytes = 0
        self._by_tenant: dict[str, int] = {}
        self._changed = threading.RLock()  # collecting garbage may release what is held at any place

    def hold(self, media: PromptMedia, tenant: str) -> None:
        """Count the inputs of a prompt until nothing has its media any more. Raises EngineUnavailable.

        A request is taken, however large, if there is no other.
        """
        num_bytes = sum(len(tensor.data) for item in media.definitions for tensor in item.tensors)
        if not num_bytes:
            return
        with self._changed:
            held, own = self.num_bytes + num_bytes, self._by_tenant.get(tenant, 0) + num_bytes
            if self.num_bytes and own > self._most_bytes - held:
                raise EngineUnavailable(ErrorCode.OVERLOADED, self._refusal())
            self.num_bytes, self._by_tenant[tenant] = held, own
        weakref.finalize(media, self._release, tenant, num_bytes)

    def _refusal(self) -> str:
        return (
            f"the media of unfinished requests take what this project may have of the {self._most_bytes >> 20} MiB for "
            "them; try again later, with fewer or smaller ones, or the operator may raise "
            "LIGHTCONE_MAX_ENCODER_INPUT_BYTES"
        )

    def _release(self, tenant: str, num_bytes: int) -> None:
        with self._changed:
            self.num_bytes -= num_bytes
            self._by_tenant[tenant] -= num_bytes
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]
