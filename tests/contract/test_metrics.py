"""The metrics of a served Lightcone count requests and contain nothing of their contents."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.contract.habits import ROUTE, Http

pytestmark = pytest.mark.live


def value(text: str, name: str, **labels: str) -> float:
    """Return the sum of a metric over the series that have these labels."""
    wanted = [f'{label}="{label_value}"' for label, label_value in labels.items()]
    lines = [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]
    return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in wanted))


def test_a_request_is_counted_and_the_server_is_measured(lightcone: Any) -> None:
    url = f"http://127.0.0.1:{lightcone.metrics_port}/metrics"
    http = Http(lightcone)

    def asked(status: str) -> float:
        return value(httpx.get(url).text, "lightcone_requests_total", model=http.model, route=ROUTE, status=status)

    refused_before = value(httpx.get(url).text, "lightcone_requests_total", model="other", route=ROUTE, status="404")
    before = asked("200")
    answer = http.answer(user="ann-canary", max_tokens=3, ignore_eos=True)
    http.error(404, model="model-canary")
    lightcone.wait_for(lambda: asked("200") >= before + 1, timeout_s=30, what="the request to be counted")

    def refused() -> float:
        return value(httpx.get(url).text, "lightcone_requests_total", model="other", route=ROUTE, status="404")

    lightcone.wait_for(lambda: refused() >= refused_before + 1, timeout_s=30, what="the refusal to be counted")

    def has_beaten() -> bool:
        """Return whether worker and web have reported; they do so with their heartbeats."""
        seen = httpx.get(url).text
        is_ready = value(seen, "lightcone_workers", model=http.model, status="ready") == 1
        return (
            is_ready
            and value(seen, "lightcone_kv_blocks", model=http.model) > 0
            and value(seen, "lightcone_reading_processes") >= 1
        )

    lightcone.wait_for(has_beaten, timeout_s=30, what="the beats of worker and web")
    text = httpx.get(url).text
    assert value(text, "lightcone_completion_tokens_total", model=http.model) >= answer["usage"]["completion_tokens"]
    assert value(text, "lightcone_time_to_first_token_seconds_count", model=http.model) >= 1
    assert value(text, "lightcone_workers", model=http.model, status="ready") == 1
    assert value(text, "lightcone_kv_blocks", model=http.model) > 0
    assert value(text, "lightcone_valkey_up") == 1
    assert value(text, "lightcone_reading_processes") >= 1
    for word in ("canary", lightcone.api_key, "accept0001", "127.0.0.1"):
        assert word not in text
    http.close()


def test_metrics_are_not_on_the_public_port_and_the_api_not_on_theirs(lightcone: Any) -> None:
    http = Http(lightcone)
    assert "lightcone_requests" not in http.client.get("/metrics").text
    assert httpx.get(f"http://127.0.0.1:{lightcone.metrics_port}/v1/models").status_code == 404
    assert (
        httpx.get(f"http://127.0.0.1:{lightcone.metrics_port}/metrics", headers={"Host": "evil.example"}).status_code
        == 400
    )
    http.close()
