"""Images and videos with a `uuid`: remember those that are sent, find those that are named alone."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Collection, Mapping, Sequence

from django.conf import settings

from chat.access.keys import Caller
from chat.api.request.image_parts import SentMedia, base64_of, image_url, is_name
from chat.errors import ApiError
from chat.media.named import NamedMedia
from engine.api.media import MediaKind


async def media_named(
    kind: MediaKind,
    sent: Sequence[SentMedia],
    fetched: Mapping[str, bytes | ApiError],
    unkept: Collection[str],
    caller: Caller,
    media: NamedMedia,
) -> dict[str, bytes]:
    """Return the media of a kind that a request names without sending them, by their names. Unknown ones are left out.

    What the same request sends with a name is found by it, kept or not: nothing is of a project that stores nothing,
    nor of `unkept` addresses, whose servers have said so.
    """
    named = [item for item in sent[: settings.LIGHTCONE_MEDIA_LIMITS.max_media_items] if is_name(item.uuid)]
    if not named:
        return {}
    return await asyncio.to_thread(_named, kind, named, fetched, unkept, caller, media)


def _named(
    kind: MediaKind,
    sent: Sequence[SentMedia],
    fetched: Mapping[str, bytes | ApiError],
    unkept: Collection[str],
    caller: Caller,
    media: NamedMedia,
) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for item in sent:
        url, name = image_url(item.value), str(item.uuid)
        if isinstance(url, str) and (data := _bytes_of(url, fetched)):
            if url in unkept:
                media.forget(caller.tenant, kind, name)
            elif not caller.stores_nothing:
                media.remember(caller.tenant, kind, name, data)
            found[name] = data
    num_left = settings.LIGHTCONE_MEDIA_LIMITS.max_media_request_bytes - sum(map(len, found.values()))
    for item in sent:
        name = str(item.uuid)
        if image_url(item.value) is None and name not in found:
            kept = media.find(caller.tenant, kind, name)
            if kept is not None:
                found[name] = kept
                num_left -= len(kept)
        if num_left < 0:  # one beyond the bound is refused with it, and no more are read
            break
    return found


def _bytes_of(url: str, fetched: Mapping[str, bytes | ApiError]) -> bytes:
    """Return the bytes of an item that was sent; none of one that is refused for its size or its base64."""
    data = fetched.get(url)
    if not isinstance(data, bytes):
        try:
            data = base64.b64decode(base64_of(url, fetched) or "", validate=True)
        except (binascii.Error, ValueError):
            return b""
    return data if len(data) <= settings.LIGHTCONE_MEDIA_LIMITS.max_media_bytes else b""
