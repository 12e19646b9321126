"""The overview: figures from the sums of hours and days, and its charts."""

from __future__ import annotations

import html
import json
import re
import time
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chat.usage.services import usage_records_write
from tests.chat.records import record


def charts(text: str) -> list[dict[str, int]]:
    """Return of each chart the sum of each of its parts, by colour."""
    values = [json.loads(html.unescape(value)) for value in re.findall(r'data-type="bar" data-value="([^"]*)"', text)]
    return [{part["backgroundColor"]: sum(part["data"]) for part in value["datasets"]} for value in values]


def test_an_empty_installation_has_an_overview(admin_client: Client) -> None:
    text = admin_client.get(reverse("admin:index")).text
    assert "Requests: 0 requests" in text
    assert text.count('class="lc-chart"') == 2


def test_the_overview_shows_requests_errors_tokens_and_percentiles(admin_client: Client, db: None) -> None:
    now = time.time()
    failed = [record(at_s=now, status=503, outcome="failed", first_token_at=None)]
    left = [
        record(at_s=now, status=499, outcome="disconnected", first_token_at=None, prompt_tokens=0) for _ in range(5)
    ]
    usage_records_write([record(at_s=now) for _ in range(19)] + failed + left)
    for span in ("24h", "30d"):
        text = admin_client.get(reverse("admin:index"), {"span": span}).text
        assert re.search(r"<dt>Server errors</dt><dd>1</dd><dd class=\"lc-remark\">5.0 %", text)
        assert re.search(r"<dt>Client errors</dt><dd>0</dd><dd class=\"lc-remark\">0.0 %", text)
        assert "<dt>Clients who left</dt><dd>5</dd>" in text
        assert "<dt>Prompt tokens</dt><dd>200</dd>" in text
        assert "25 requests: 0 client errors, 1 server errors, 5 whose client left" in text
        assert re.search(r"First token, median</dt><dd>1[0-9]{2} ms", text)
        requests, tokens = charts(text)
        assert requests == {"var(--lc-good)": 19, "var(--lc-left)": 5, "var(--lc-poor)": 0, "var(--lc-bad)": 1}
        assert tokens["var(--lc-prompt)"] + tokens["var(--lc-cached)"] == 200


def test_the_overview_reads_sums_and_never_the_log(admin_client: Client, db: None) -> None:
    usage_records_write([record(at_s=time.time()) for _ in range(10)])
    with CaptureQueriesContext(connection) as queries:
        admin_client.get(reverse("admin:index"), {"span": "30d"})
    assert len(queries) <= 17
    assert not any("chat_requestlog" in item["sql"] for item in queries)


def test_the_overview_has_no_inline_script_or_style_attribute_of_ours(admin_client: Client) -> None:
    text = admin_client.get(reverse("admin:index")).text
    assert not re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", text)
    assert not re.findall(r"\son[a-z]+=", text)
    content = text[text.index('class="lc-spans"') :]
    assert "style=" not in content[: content.index("</details>")]


def test_an_unknown_span_shows_the_day(admin_client: Client) -> None:
    answer: Any = admin_client.get(reverse("admin:index"), {"span": "<b>"})
    assert answer.status_code == 200
    assert "<b>" not in answer.text
