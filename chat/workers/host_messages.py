"""What a worker host says and hears in Valkey: leases of models without a worker, demands, changes of the catalogue."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError

from chat.relay.state.hosts import HAS_LEFT, LEFT_MS
from chat.relay.state.keys import Keys
from chat.relay.state.runs import LEASE_MS
from chat.relay.valkey import BlockingValkey

logger = logging.getLogger(__name__)


class HostMessages:
    """The messages of one host. Methods raise RedisError and OSError unless they say otherwise."""

    def __init__(self, client: BlockingValkey, keys: Keys) -> None:
        self._client: Any = client
        self._keys = keys

    def epoch(self) -> bytes | None:
        """Return the number that rises with each change of the catalogue."""
        epoch: bytes | None = self._client.get(self._keys.configuration_epoch)
        return epoch

    def demands(self, slugs: Sequence[str]) -> set[str]:
        """Take one demand for each of these models; return those that had one."""
        if not slugs:
            return set()
        pipe = self._client.pipeline(transaction=False)
        for slug in slugs:
            pipe.lpop(self._keys.demand(slug))
        return {slug for slug, found in zip(slugs, pipe.execute(), strict=True) if found is not None}

    def ask(self, slug: str) -> None:
        """Demand a model, unless it is demanded already."""
        if not self._client.exists(self._keys.demand(slug)):
            self._client.lpush(self._keys.demand(slug), "1")

    def has_tasks(self, slug: str) -> bool:
        """Return True while tasks of a model wait in its queue."""
        return bool(self._client.llen(self._keys.tasks(slug)))

    def write(
        self, leases: Sequence[tuple[str, str, Mapping[str, Any]]], add_report: Callable[[Any, Keys], None]
    ) -> None:
        """Renew leases (id, slug and fields) and have the host's report added. Does nothing while Valkey is away."""
        pipe = self._client.pipeline(transaction=False)
        for lease_id, slug, fields in leases:
            pipe.hset(self._keys.worker(lease_id), mapping=fields)
            pipe.pexpire(self._keys.worker(lease_id), LEASE_MS)
            pipe.sadd(self._keys.workers, lease_id)
            pipe.sadd(self._keys.model_workers(slug), lease_id)
        add_report(pipe, self._keys)
        with valkey_missed():
            pipe.execute()

    def drop(self, lease_ids: Sequence[str]) -> None:
        """Give up leases. Does nothing while Valkey is away: they expire."""
        with valkey_missed():
            for lease_id in lease_ids:
                self._client.delete(self._keys.worker(lease_id))

    def leave(self, node: str) -> None:
        """Take a host that stops off the list, so that it does not count as lost."""
        pipe = self._client.pipeline()
        pipe.zrem(self._keys.hosts, node)
        pipe.delete(self._keys.host(node))
        pipe.hset(self._keys.host(node), HAS_LEFT, 1)
        pipe.pexpire(self._keys.host(node), LEFT_MS)
        with valkey_missed():
            pipe.execute()


@contextlib.contextmanager
def valkey_missed() -> Iterator[None]:
    """Leave undone what an unavailable Valkey does not take; a later turn does it."""
    try:
        yield
    except (RedisError, OSError) as error:
        logger.warning("Valkey does not answer: %s", error)
