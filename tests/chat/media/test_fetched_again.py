"""What is kept of fetched files, for whom, and when it is asked for again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chat.errors import ApiError
from chat.media.fetching import MediaFetcher
from tests.chat.media.fetched import IMAGE, PARAM, PNG, fetched, refused
from tests.chat.media.server import FileServer, answer


@pytest.mark.parametrize(
    ("headers", "may_be_kept"),
    [
        ({}, True),
        ({"cache_control": "max-age=9, no-store"}, False),
        ({"cache_control": "private", "Cache_Control": "no-store"}, False),
        ({"cache_control": "no-store, x=\xe4"}, False),
    ],
)
async def test_whether_a_file_may_be_kept_is_said(server, fetcher, headers, may_be_kept) -> None:
    server.answers["/x"] = answer(PNG, **headers)
    assert (await fetcher.fetch(server.url("/x"), IMAGE, fetcher.budget())).may_be_kept == may_be_kept


async def test_what_has_not_changed_is_not_sent_again(server: FileServer, fetcher: MediaFetcher) -> None:
    server.answers["/x"] = answer(PNG, etag='"v1"', last_modified="Fri, 27 Nov 2026 10:00:00 GMT")
    url = server.url("/x")
    assert await fetched(fetcher, url) == PNG
    server.answers["/x"] = answer(status="304 Not Modified")
    assert await fetched(fetcher, url) == PNG
    asked = server.asked[-1].headers
    assert (asked["if-none-match"], asked["if-modified-since"]) == ('"v1"', "Fri, 27 Nov 2026 10:00:00 GMT")
    server.answers["/x"] = answer(PNG + b"new", etag='"v2"')
    assert await fetched(fetcher, url) == PNG + b"new"
    server.answers["/x"] = answer(status="304 Not Modified")
    assert await fetched(fetcher, url) == PNG + b"new"
    assert server.asked[-1].headers["if-none-match"] == '"v2"'


async def test_nothing_is_kept_for_a_project_that_stores_nothing(server, fetcher, cache) -> None:
    server.answers["/x"] = answer(PNG, etag='"v1"')
    for _ in range(2):
        assert await fetched(fetcher, server.url("/x"), replace(IMAGE, may_keep=False)) == PNG
    assert "if-none-match" not in server.asked[-1].headers
    assert cache.get(IMAGE.tenant, server.url("/x")) is None


async def test_the_cache_is_of_one_tenant_and_counts_to_the_request(server: FileServer, fetcher: MediaFetcher) -> None:
    server.answers["/x"] = answer(PNG, etag='"v1"')
    await fetched(fetcher, server.url("/x"))
    await fetched(fetcher, server.url("/x"), replace(IMAGE, tenant="tenant-b"))
    assert "if-none-match" not in server.asked[-1].headers
    server.answers["/x"] = answer(status="304 Not Modified")
    budget = fetcher.budget()
    budget.take(9_900, PARAM)
    budget.take(9_900, PARAM)
    budget.take(5_100, PARAM)
    with pytest.raises(ApiError, match="all media of a request"):
        await fetcher.fetch(server.url("/x"), IMAGE, budget)


@pytest.mark.parametrize("headers", [{}, {"etag": '"v1"', "cache_control": "private, no-store"}, {"etag": "x" * 600}])
async def test_what_cannot_or_must_not_be_kept_is_fetched_again(
    headers: dict[str, str], server: FileServer, fetcher: MediaFetcher
) -> None:
    server.answers["/x"] = answer(PNG, **headers)
    for _ in range(2):
        assert await fetched(fetcher, server.url("/x")) == PNG
    assert "if-none-match" not in server.asked[-1].headers


@pytest.mark.parametrize("status", ["304 Not Modified", "200 OK"])
async def test_a_file_is_forgotten_once_its_server_forbids_to_keep_it(status, server, fetcher) -> None:
    url = server.url("/x")
    server.answers["/x"] = answer(PNG, etag='"v1"')
    await fetched(fetcher, url)
    server.answers["/x"] = answer(PNG if "200" in status else b"", status=status, cache_control="no-store")
    assert not (await fetcher.fetch(url, IMAGE, fetcher.budget())).may_be_kept
    server.answers["/x"] = answer(PNG)
    await fetched(fetcher, url)
    assert "if-none-match" not in server.asked[-1].headers


async def test_a_kept_file_is_asked_for_where_it_came_from(server: FileServer, fetcher: MediaFetcher) -> None:
    server.answers |= {"/a": answer(status="302 F", location="/b"), "/b": answer(PNG, etag='"v1"')}
    await fetched(fetcher, server.url("/a"))
    server.answers |= {"/b": answer(status="304 Not Modified")}
    assert await fetched(fetcher, server.url("/a")) == PNG
    assert "if-none-match" not in server.asked[-2].headers
    server.answers |= {"/a": answer(status="304 Not Modified")}
    assert "could not be fetched" in await refused(fetcher, server.url("/a"))


async def test_a_host_that_is_no_longer_allowed_gives_nothing_from_the_cache(
    server: FileServer, fetcher: MediaFetcher, settings: Any
) -> None:
    server.answers["/x"] = answer(PNG, etag='"v1"')
    await fetched(fetcher, server.url("/x"))
    settings.LIGHTCONE_MEDIA_DOMAINS = ["other.example"]
    assert "names a host" in await refused(fetcher, server.url("/x"))
