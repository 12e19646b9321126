"""Fetch the remote media and files of a request, for models that take them; else find those that do."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.answering.named_media import media_named
from chat.api.request.audio_parts import AUDIO, AUDIO_EMBEDS, sounds_sent
from chat.api.request.build import embeds_problem
from chat.api.request.file_parts import file_urls, has_files
from chat.api.request.image_parts import IMAGE, IMAGE_EMBEDS, IMAGE_URL, REMOTE, MediaRules, image_url, media_sent
from chat.api.request.named_files import AttachedFile
from chat.api.request.video_parts import VIDEO, VIDEO_URL
from chat.catalog.named_models import modalities_live, models_that_take
from chat.catalog.services import ModelEntry
from chat.errors import ApiError
from chat.media.data_urls import MediaBudget
from chat.media.fetching import MediaFetcher, MediaRequest
from chat.media.named import named_media
from engine.api.media import MediaKind

Fetched = dict[str, bytes | ApiError]
EMBEDS = {IMAGE: IMAGE_EMBEDS, AUDIO: AUDIO_EMBEDS}
"""The parts that hold vectors in place of an item."""


@lru_cache(maxsize=1)
def media_fetcher() -> MediaFetcher:
    """Return the fetcher of this process."""
    return MediaFetcher()


async def media_rules(
    messages: Sequence[Any], model: ModelEntry, caller: Caller, budget: MediaBudget | None = None
) -> MediaRules:
    """Return what becomes of the images, videos and sounds of a request.

    No more are fetched than a request may have, and none for a model that does not take them. Why one could not be
    fetched is said with the other problems of the messages, so that limits answer first. `budget`: of the request,
    whose sounds may have taken some.
    """
    all_sent = {
        IMAGE: list(media_sent(messages, IMAGE_URL)),
        VIDEO: list(media_sent(messages, VIDEO_URL)),
        AUDIO: list(sounds_sent(messages)),
    }
    is_there = {kind: any(media_sent(messages, name)) for kind, name in EMBEDS.items()}
    is_there[IMAGE] = is_there[IMAGE] or has_files(messages)
    if not any(all_sent.values()) and not any(is_there.values()):
        return _taking(model.modalities)
    taken = await modalities_live(model)
    budget = budget or media_fetcher().budget()
    num_other_bytes = budget.num_taken
    fetched, others = dict[str, Fetched](), dict[str, list[str]]()
    named = dict[str, dict[str, bytes]]()
    for kind, sent in all_sent.items():
        if kind in taken:
            urls = [image_url(item.value) for item in sent]
            fetched[kind], unkept = await _fetched(urls, MediaKind(kind), caller, budget)
            named[kind] = await media_named(MediaKind(kind), sent, fetched[kind], unkept, caller, named_media())
        elif sent or is_there.get(kind):
            others[kind] = await models_that_take(kind, caller)
    hearing = await models_that_take(AUDIO, caller, by_transcriber=True) if AUDIO in others else ()
    return replace(
        _taking(taken),
        seeing=others.get(IMAGE, ()),
        fetched=fetched.get(IMAGE, {}),
        named=named.get(IMAGE, {}),
        embeds_problem=embeds_problem(caller),
        watching=others.get(VIDEO, ()),
        fetched_videos=fetched.get(VIDEO, {}),
        named_videos=named.get(VIDEO, {}),
        num_other_bytes=num_other_bytes,
        hearing=hearing,
        hearing_itself=others.get(AUDIO, ()),
        fetched_sounds=fetched.get(AUDIO, {}),
        named_sounds=named.get(AUDIO, {}),
    )


def _taking(modalities: Collection[str]) -> MediaRules:
    return MediaRules(is_taken=IMAGE in modalities, takes_videos=VIDEO in modalities, takes_sounds=AUDIO in modalities)


async def files_fetched(messages: Sequence[Any], caller: Caller, budget: MediaBudget) -> dict[str, AttachedFile]:
    """Return the files that messages name by address, or why there is none, by their addresses."""
    fetched, _ = await _fetched(list(file_urls(messages)), MediaKind.DOCUMENT, caller, budget)
    return {url: await _file(url, found) for url, found in fetched.items()}


async def _file(url: str, found: bytes | ApiError) -> AttachedFile:
    if isinstance(found, ApiError):
        return AttachedFile(problem=found.message, code=found.code)
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    is_name = name.isprintable() and 0 < len(name) <= settings.LIGHTCONE_LIMITS.max_label_chars
    encoded = await asyncio.to_thread(base64.b64encode, found)
    return AttachedFile(name if is_name else "", encoded.decode())


async def _fetched(
    urls: Sequence[Any], kind: MediaKind, caller: Caller, budget: MediaBudget
) -> tuple[Fetched, set[str]]:
    """Return the remote items of one kind, or why there is none, by their addresses; and those that may not be kept."""
    remote = [url for url in urls if isinstance(url, str) and REMOTE.match(url)]
    fetcher, may_fetch = media_fetcher(), bool(remote) and caller.has_right(str(Right.MEDIA_FETCH))
    most = settings.LIGHTCONE_LIMITS.max_file_bytes if kind == MediaKind.DOCUMENT else None
    asked = MediaRequest(kind, "", caller.tenant, may_fetch, may_keep=not caller.stores_nothing, max_bytes=most)

    async def fetched(url: str) -> bytes | ApiError:
        try:
            found = await fetcher.fetch(url, asked, budget)
            if not found.may_be_kept:
                unkept.add(url)
            return found.data
        except ApiError as error:
            return ApiError(error.code, error.message.strip())

    wanted, unkept = list(dict.fromkeys(remote))[: fetcher.limits.max_media_items], set[str]()
    return dict(zip(wanted, await asyncio.gather(*map(fetched, wanted)), strict=True)), unkept
