"""The OpenAPI document holds every field and every route, and its page obeys the content policy."""

import re

import httpx
import pytest
from django.urls import resolve

from chat.dialects.request.schema import ChatCompletionRequest
from chat.openapi import Routes


@pytest.fixture
async def pages():
    from lightcone_site.asgi import http

    async with httpx.AsyncClient(transport=httpx.ASGITransport(http), base_url="http://localhost") as client:
        yield client


async def test_every_request_field_is_in_the_document(pages):
    document = (await pages.get("/api/schema")).json()
    schema = document["components"]["schemas"]["ChatCompletionRequest"]
    assert list(schema["properties"]) == list(ChatCompletionRequest().fields)
    assert schema["properties"]["temperature"]["maximum"] == 2
    assert schema["required"] == ["messages"]
    operation = document["paths"]["/v1/chat/completions"]["post"]
    assert set(operation["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert "429" in operation["responses"]


def test_every_described_route_is_served():
    for pattern in Routes.urlpatterns:
        path = "/" + re.sub(r"<[^>]+>", "a", str(pattern.pattern))
        assert resolve(path).func.__module__ == "chat.dialects.view", path


async def test_the_page_has_no_inline_script_and_a_strict_policy(pages):
    response = await pages.get("/docs")
    assert response.status_code == 200
    assert re.findall(r"<script(?![^>]* src=)", response.text) == []
    policy = response.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
