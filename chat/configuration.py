"""Notice that keys, projects or models changed, for everything that keeps copies of them.

Services call `configuration_touch()` beside each write. Receivers run after the commit, in the process that wrote; one of
them raises the epoch in Valkey, by which other processes learn of it.
"""

from __future__ import annotations

from django.db import transaction
from django.dispatch import Signal

configuration_changed = Signal()


def configuration_touch() -> None:
    """Send `configuration_changed` once the current transaction has committed."""
    transaction.on_commit(lambda: configuration_changed.send(sender=None))
