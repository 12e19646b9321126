"""What no audit entry may hold, of all that tests type, make and store."""

from __future__ import annotations

import re

from chat.models import AuditEntry

PASSWORD = "correct-horse-battery-9"
SECRETS = re.compile(rf"{PASSWORD}|lc_[a-z0-9]+_[0-9a-f]{{48}}|\b(md5|pbkdf2_sha256)\$|\b[0-9a-f]{{64}}\b", re.ASCII)
"""A password, the text of a key, the hash of either."""


def entries_after(last: int) -> list[AuditEntry]:
    """Return later entries, the oldest first, after a look at each for secrets."""
    entries = list(AuditEntry.objects.filter(pk__gt=last).order_by("pk"))
    for entry in entries:
        stored = repr({name: value for name, value in vars(entry).items() if name != "_state"})
        assert SECRETS.search(stored) is None, stored
    return entries


def last_entry() -> int:
    """Return the primary key of the last entry."""
    entry = AuditEntry.objects.order_by("pk").last()
    return 0 if entry is None else entry.pk
