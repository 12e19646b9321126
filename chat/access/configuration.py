"""Announce changes of keys, projects and models to everything that caches them.

Services call `configuration_touch()` beside each write. After the commit `configuration_changed` empties the caches of
this process, and the epoch in Valkey rises, which other processes read with each request (`authentication.py`).
"""

from __future__ import annotations

import logging

import redis
from django.conf import settings
from django.db import transaction
from django.dispatch import Signal

from chat.relay.state.keys import Keys

logger = logging.getLogger(__name__)

TIMEOUT_S = 1.0

configuration_changed = Signal()


def configuration_touch() -> None:
    """Announce the change once the current transaction has committed."""
    transaction.on_commit(_make_known)


def _make_known() -> None:
    configuration_changed.send(sender=None)
    url, keys = settings.LIGHTCONE_REDIS_URL, Keys(settings.LIGHTCONE_DEPLOYMENT)
    try:
        with redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S) as client:
            client.incr(keys.configuration_epoch)
    except redis.RedisError as error:
        # While Valkey is away no cache is trusted, and entries live for seconds only.
        logger.warning("configuration epoch not raised: %s", error)
