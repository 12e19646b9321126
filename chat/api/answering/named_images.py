"""Images and videos with a `uuid`: remember those that are sent, find those that are named alone."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence

from django.conf import settings

from chat.api.request.image_parts import SentImage, base64_of, image_url, is_name
from chat.errors import ApiError
from chat.media.named import NamedMedia
from engine.api.media import MediaKind


async def images_named(
    sent: Sequence[SentImage],
    fetched: Mapping[str, bytes | ApiError],
    tenant: str,
    media: NamedMedia,
    kind: MediaKind = MediaKind.IMAGE,
) -> dict[str, bytes]:
    """Return the items of a kind that a request names without sending them, by their names; no unknown ones.

    An item that the same request sends with a name is found by it, kept or not.
    """
    named = [image for image in sent[: settings.LIGHTCONE_MEDIA_LIMITS.max_media_items] if is_name(image.uuid)]
    if not named:
        return {}
    return await asyncio.to_thread(_named, named, fetched, tenant, media, kind)


def _named(
    sent: Sequence[SentImage],
    fetched: Mapping[str, bytes | ApiError],
    tenant: str,
    media: NamedMedia,
    kind: MediaKind,
) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for image in sent:
        url, name = image_url(image.value), str(image.uuid)
        if isinstance(url, str) and (data := _bytes_of(url, fetched)):
            media.remember(tenant, kind, name, data)
            found[name] = data
    for image in sent:
        name = str(image.uuid)
        if image_url(image.value) is None and name not in found:
            kept = media.find(tenant, kind, name)
            if kept is not None:
                found[name] = kept
    return found


def _bytes_of(url: str, fetched: Mapping[str, bytes | ApiError]) -> bytes:
    """Return the bytes of an image that was sent; none of one that is refused for its size or its base64."""
    text = base64_of(url, fetched) or ""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return data if len(data) <= settings.LIGHTCONE_MEDIA_LIMITS.max_media_bytes else b""
