"""Media that clients have sent with a `uuid`, to name them later without their bytes: kept by tenant.

They share folder and bounds with what is fetched (cache.py): what has not been used for a day is forgotten, and what
has not been for longest as the folder fills. A name stands for what was last sent with it.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from django.conf import settings

from chat.media.cache import Kept, MediaCache
from chat.media.fetching import CACHE_FOLDER
from engine.api.media import MediaKind
from engine.api.media_formats import media_format


class NamedMedia:
    """The media of all tenants that have a name. Calls block: they belong into a thread."""

    def __init__(self, cache: MediaCache) -> None:
        self._cache = cache

    def find(self, tenant: str, kind: MediaKind, name: str) -> bytes | None:
        """Return what a tenant has sent under a name, or None."""
        kept = self._cache.get(tenant, _key(kind, name))
        return None if kept is None else kept.data

    def remember(self, tenant: str, kind: MediaKind, name: str, data: bytes) -> None:
        """Keep media under a name in place of what it has stood for, if the bytes begin like some of this kind."""
        found = media_format(data)
        if found is not None and kind in found.kinds and self.find(tenant, kind, name) != data:
            self._cache.put(tenant, _key(kind, name), Kept("", sha256(data).hexdigest(), "", data))

    def forget(self, tenant: str, kind: MediaKind, name: str) -> None:
        """Let a name stand for nothing."""
        self._cache.drop(tenant, _key(kind, name))


@lru_cache(maxsize=1)
def named_media() -> NamedMedia:
    """Return the named media of this process."""
    return NamedMedia(MediaCache(Path(settings.DATA_DIR) / CACHE_FOLDER, settings.LIGHTCONE_MEDIA_CACHE_BYTES))


def _key(kind: MediaKind, name: str) -> str:
    return f"uuid:{kind}:{name}"
