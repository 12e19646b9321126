"""Fetch the remote images and videos of a request for a model that takes them; else find the models that do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.answering.named_media import media_named
from chat.api.request.build import embeds_problem
from chat.api.request.file_parts import has_files
from chat.api.request.image_parts import IMAGE, IMAGE_EMBEDS, IMAGE_URL, REMOTE, ImageRules, image_url, media_sent
from chat.api.request.video_parts import VIDEO, VIDEO_URL
from chat.catalog.named_models import modalities_live, models_that_take
from chat.catalog.services import ModelEntry
from chat.errors import ApiError
from chat.media.data_urls import MediaBudget
from chat.media.fetching import MediaFetcher, MediaRequest
from chat.media.named import named_media
from engine.api.media import MediaKind

Fetched = dict[str, bytes | ApiError]


@lru_cache(maxsize=1)
def media_fetcher() -> MediaFetcher:
    """Return the fetcher of this process."""
    return MediaFetcher()


async def image_rules(messages: Sequence[Any], model: ModelEntry, caller: Caller) -> ImageRules:
    """Return what becomes of the images and videos of a request.

    No more are fetched than a request may have, and none for a model that does not take them. Why one could not be
    fetched is said with the other problems of the messages, so that limits answer first.
    """
    all_sent = {IMAGE: list(media_sent(messages, IMAGE_URL)), VIDEO: list(media_sent(messages, VIDEO_URL))}
    has_others = next(media_sent(messages, IMAGE_EMBEDS), None) is not None or has_files(messages)
    if not any(all_sent.values()) and not has_others:
        return ImageRules(is_taken=IMAGE in model.modalities, takes_videos=VIDEO in model.modalities)
    taken = await modalities_live(model)
    budget = media_fetcher().budget()
    fetched, others = dict[str, Fetched](), dict[str, list[str]]()
    named = dict[str, dict[str, bytes]]()
    for kind, sent in all_sent.items():
        if kind in taken:
            urls = [image_url(item.value) for item in sent]
            fetched[kind] = await _fetched(urls, MediaKind(kind), caller, budget)
            named[kind] = await media_named(MediaKind(kind), sent, fetched[kind], caller, named_media())
        elif sent or (kind == IMAGE and has_others):
            others[kind] = await models_that_take(kind, caller)
    return ImageRules(
        is_taken=IMAGE in taken,
        seeing=others.get(IMAGE, ()),
        fetched=fetched.get(IMAGE, {}),
        named=named.get(IMAGE, {}),
        embeds_problem=embeds_problem(caller),
        takes_videos=VIDEO in taken,
        watching=others.get(VIDEO, ()),
        fetched_videos=fetched.get(VIDEO, {}),
        named_videos=named.get(VIDEO, {}),
    )


async def _fetched(urls: Sequence[Any], kind: MediaKind, caller: Caller, budget: MediaBudget) -> Fetched:
    """Return the remote items of one kind, or why there is none, by their addresses."""
    remote = [url for url in urls if isinstance(url, str) and REMOTE.match(url)]
    fetcher, may_fetch = media_fetcher(), bool(remote) and caller.has_right(str(Right.MEDIA_FETCH))

    async def fetched(url: str) -> bytes | ApiError:
        try:
            return (await fetcher.fetch(url, MediaRequest(kind, "", caller.tenant, may_fetch), budget)).data
        except ApiError as error:
            return ApiError(error.code, error.message.strip())

    wanted = list(dict.fromkeys(remote))[: fetcher.limits.max_media_items]
    return dict(zip(wanted, await asyncio.gather(*map(fetched, wanted)), strict=True))
