"""What /docs shows can be sent as it stands: the first request, and the example of every POST route."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape

import httpx
import pytest

from chat.api.openapi.answers import MODEL_NAME
from chat.api.openapi.document import operations

pytestmark = [pytest.mark.live, pytest.mark.slow]

NEEDS = {
    "/v1/rerank": (400, 404),
    "/v2/rerank": (400, 404),
    "/v1/batches": (400, 404),
}
"""Examples that need another kind of model, or a file, and how the server says so."""
CHANGING = ("/v1/admin/", "/v1/organization/", "/api/pull", "/api/create", "/api/copy", "/v1/chat/completions/{")
"""Routes that change the installation, or name what the reader has stored; their own tests cover them."""


def examples():
    for route, operation in operations().items():
        method, path = route.split(" ")
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
        if method == "POST" and body is not None and not path.startswith(CHANGING):
            yield path, body


@pytest.mark.parametrize(("path", "body"), list(examples()), ids=[path for path, _ in examples()])
def test_an_example_is_answered_or_refused_for_a_stated_reason(lightcone, path, body):
    sent = json.loads(json.dumps(body).replace(MODEL_NAME, lightcone.model))
    headers = {"Authorization": f"Bearer {lightcone.api_key}"}
    answer = httpx.post(lightcone.base_url + path, json=sent, headers=headers, timeout=120)
    assert answer.status_code in NEEDS.get(path, (200,)), answer.text
    if path in NEEDS:
        assert answer.json(), "the refusal says why"


def test_the_first_request_of_the_page_is_answered(lightcone):
    page = httpx.get(f"{lightcone.base_url}/docs").text
    shown = unescape(re.search(r'id="first-request"[^>]*>(.*?)</pre>', page, re.DOTALL)[1])
    _, url, *words = shlex.split(
        shown.split("\n", 1)[1].replace("\\\n", " ").replace("$LIGHTCONE_API_KEY", lightcone.api_key)
    )
    options = list(zip(words[::2], words[1::2], strict=True))
    headers = dict(value.split(": ", 1) for option, value in options if option == "-H")
    answer = httpx.post(url, content=dict(options)["-d"], headers=headers, timeout=120)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"]
