"""Fetch the remote images of a request for a model that sees; for another, find the caller's models that do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.request.image_parts import IMAGE, REMOTE, ImageRules, image_url, images_sent
from chat.catalog.named_models import models_that_take
from chat.catalog.services import ModelEntry
from chat.media.fetching import MediaFetcher, MediaRequest
from engine.api.media import MediaKind


@lru_cache(maxsize=1)
def media_fetcher() -> MediaFetcher:
    """Return the fetcher of this process."""
    return MediaFetcher()


async def image_rules(messages: Sequence[Any], model: ModelEntry, caller: Caller) -> ImageRules:
    """Return what becomes of the images of a request. Raises ApiError for one that cannot be fetched.

    No more are fetched than a request may have, and none for a model that does not see.
    """
    if IMAGE not in model.modalities:
        has_images = next(images_sent(messages), None) is not None
        return ImageRules(seeing=await models_that_take(IMAGE, caller) if has_images else ())
    sent = ((image_url(image), path) for image, path in images_sent(messages))
    remote = [(url, path) for url, path in sent if isinstance(url, str) and REMOTE.match(url)]
    if not remote:
        return ImageRules(is_taken=True)
    fetcher = media_fetcher()
    budget, fetched = fetcher.budget(), dict[str, bytes]()
    for url, path in islice(remote, fetcher.limits.max_media_items):
        if url not in fetched:
            may_fetch = caller.has_right(str(Right.MEDIA_FETCH))
            request = MediaRequest(MediaKind.IMAGE, f"{path}.url", caller.tenant, may_fetch)
            fetched[url] = (await fetcher.fetch(url, request, budget)).data
    return ImageRules(is_taken=True, fetched=fetched)
