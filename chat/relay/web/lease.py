"""The lease by which the reaper knows that a web process is alive, renewed by a thread with its own connection.

One large request may block the event loop for seconds, and the runs of the process must survive that. A loop that is
blocked for longer counts as dead: the thread renews the lease only while the loop calls `tick`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from redis.exceptions import RedisError

from chat.relay.state.keys import Keys
from chat.relay.state.runs import LEASE_MS
from chat.relay.valkey import BlockingValkey, WritesRefused

logger = logging.getLogger(__name__)

RENEW_S = 1.0
LOOP_DEAD_S = 30.0


class WebLease:
    """The renewal of one lease. `is_refused`: Valkey refused the last renewal because it takes no writes."""

    def __init__(
        self, client: BlockingValkey, keys: Keys, web_id: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._keys = keys
        self._web_id = web_id
        self._clock = clock
        self._channel = ""
        self._ticked_at = clock()
        self.is_refused = False
        self._is_loop_dead = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._renew_forever, name="web-lease", daemon=True)

    def start(self, channel: str) -> None:
        self._channel = channel
        self.tick()
        self._thread.start()

    def tick(self) -> None:
        self._ticked_at = self._clock()

    def close(self) -> None:
        """Stop the thread and wait for it. Must not run on the loop."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()

    def renew(self) -> None:
        """Renew the lease unless the loop is dead. Raises redis.RedisError or OSError."""
        late_s = self._clock() - self._ticked_at
        if late_s > LOOP_DEAD_S:
            if not self._is_loop_dead:
                logger.error(
                    "the loop of this web process has stood still for %.0f s; its lease is not renewed", late_s
                )
            self._is_loop_dead = True
            return
        self._is_loop_dead = False
        try:
            self._client.set(self._keys.web(self._web_id), self._channel, px=LEASE_MS)
            self._client.sadd(self._keys.webs, self._web_id)
        except WritesRefused:
            self.is_refused = True
            raise
        self.is_refused = False

    def _renew_forever(self) -> None:
        while not self._is_over.wait(RENEW_S):
            try:
                self.renew()
            except (RedisError, OSError) as error:
                logger.warning("lease of this web process not renewed: %s", error)
