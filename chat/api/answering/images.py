"""Fetch the remote images of a request for a model that sees; for another, find the caller's models that do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.answering.named_images import images_named
from chat.api.request.image_parts import IMAGE, REMOTE, ImageRules, SentImage, image_url, images_sent
from chat.catalog.named_models import modalities_live, models_that_take
from chat.catalog.services import ModelEntry
from chat.errors import ApiError
from chat.media.fetching import MediaFetcher, MediaRequest
from chat.media.named import named_media
from engine.api.media import MediaKind


@lru_cache(maxsize=1)
def media_fetcher() -> MediaFetcher:
    """Return the fetcher of this process."""
    return MediaFetcher()


async def image_rules(messages: Sequence[Any], model: ModelEntry, caller: Caller) -> ImageRules:
    """Return what becomes of the images of a request.

    No more are fetched than a request may have, and none for a model that does not see. Why one could not be fetched is
    said with the other problems of the messages, so that limits answer first.
    """
    sent = list(images_sent(messages))
    if not sent:
        return ImageRules(is_taken=IMAGE in model.modalities)
    if IMAGE not in await modalities_live(model):
        return ImageRules(seeing=await models_that_take(IMAGE, caller))
    fetched = await _images_fetched(sent, caller)
    named = await images_named(sent, fetched, caller.tenant, named_media())
    return ImageRules(is_taken=True, fetched=fetched, named=named)


async def _images_fetched(sent: Sequence[SentImage], caller: Caller) -> dict[str, bytes | ApiError]:
    urls = [image_url(image.value) for image in sent]
    remote = [url for url in urls if isinstance(url, str) and REMOTE.match(url)]
    if not remote:
        return {}
    fetcher, may_fetch = media_fetcher(), caller.has_right(str(Right.MEDIA_FETCH))
    budget = fetcher.budget()

    async def fetched(url: str) -> bytes | ApiError:
        try:
            return (await fetcher.fetch(url, MediaRequest(MediaKind.IMAGE, "", caller.tenant, may_fetch), budget)).data
        except ApiError as error:
            return ApiError(error.code, error.message.strip())

    first = list(dict.fromkeys(remote))[: fetcher.limits.max_media_items]
    found = await asyncio.gather(*map(fetched, first))
    return dict(zip(first, found, strict=True))
