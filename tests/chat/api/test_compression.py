"""Pages go compressed to clients that accept it; streams and what is no page stay as they are."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import pytest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.test import Client, RequestFactory

from chat.api.middleware import PageMiddleware

GZIP = {"Accept-Encoding": "br, gzip"}
LONG = "<p>page</p>" * 1000


async def answered(response: HttpResponseBase, **headers: str) -> HttpResponseBase:
    """Return the response as it leaves the middleware of pages."""

    async def view(request: HttpRequest) -> HttpResponseBase:
        return response

    accepted = headers or {"Accept-Encoding": "gzip"}
    return await PageMiddleware(view)(RequestFactory().get("/", headers=accepted))


def test_pages_are_compressed_and_caches_know_it(client: Client) -> None:
    for path in ("/sign-in", "/docs", "/api/schema"):
        plain, packed = client.get(path), client.get(path, headers=GZIP)
        assert "Content-Encoding" not in plain
        assert packed["Content-Encoding"] == "gzip"
        assert packed["Content-Length"] == str(len(packed.content))
        assert "Accept-Encoding" in packed["Vary"]
        assert len(packed.content) < len(plain.content)
        assert gzip.decompress(packed.content)[:15] == plain.content[:15]


async def test_the_length_of_a_compressed_page_says_little_about_a_secret_in_it() -> None:
    """Pages repeat what the address says beside secrets: the length must not show whether both are the same."""
    lengths = {len((await answered(HttpResponse(LONG))).content) for _ in range(64)}
    assert len(lengths) > 1


async def test_an_etag_of_a_compressed_page_is_weak() -> None:
    assert (await answered(HttpResponse(LONG, headers={"ETag": '"a"'})))["ETag"] == 'W/"a"'


@pytest.mark.parametrize("kind", ["application/json", "image/png", "text/event-stream"])
async def test_what_is_no_page_stays_as_it_is(kind: str) -> None:
    response = await answered(HttpResponse(LONG, content_type=kind, headers={"ETag": '"a"'}))
    assert (response.content, response["ETag"]) == (LONG.encode(), '"a"')
    assert "Content-Encoding" not in response


async def test_a_stream_stays_as_it_is() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield LONG.encode()

    response = await answered(StreamingHttpResponse(pieces(), content_type="text/html"))
    assert isinstance(response, StreamingHttpResponse)
    assert [piece async for piece in response] == [LONG.encode()]
    assert "Content-Encoding" not in response
