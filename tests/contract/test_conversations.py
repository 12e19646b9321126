"""Conversations on a served Lightcone: an answer is saved although its page has gone, and the server's own refusals."""

from __future__ import annotations

import json
import secrets
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

API = "/playground/api/"
SAVED_WITHIN_S = 30.0


def test_an_answer_is_saved_although_its_page_has_gone(lightcone: ServedLightcone, browser: httpx.Client) -> None:
    chat, run = secrets.token_hex(12), secrets.token_hex(12)
    turns = f"{API}conversations/{chat}/turns/"
    browser.put(f"{API}conversations/{chat}", json={}).raise_for_status()
    question = {"role": "user", "state": "ended", "content": "Say hello."}
    browser.put(turns + "1", json=question).raise_for_status()
    begun = {"parent": "1", "role": "assistant", "state": "begun", "run": run}
    browser.put(turns + "2", json=begun).raise_for_status()
    url = lightcone.base_url.replace("http:", "ws:") + "/ws/playground"
    cookie = {"Cookie": f"lightcone_session={browser.cookies['lightcone_session']}"}
    with connect(url, origin=lightcone.base_url, additional_headers=cookie, proxy=None) as socket:  # type: ignore[arg-type]  # a plain string will do
        request = {"messages": [{"role": "user", "content": "Say hello."}], "temperature": 0, "max_tokens": 64}
        socket.send(json.dumps({"type": "start", "id": run, "request": request}))
        assert json.loads(socket.recv(60))["type"] in ("waiting", "admitted")

    def answer() -> dict[str, Any]:
        return browser.get(f"{API}conversations/{chat}").json()["turns"][1]

    lightcone.wait_for(lambda: answer()["state"] != "begun", timeout_s=SAVED_WITHIN_S, what="the turn to end")
    found = answer()
    assert found["state"] == "ended"
    assert found["content"]["choices"][0]["content"]
    assert 0 < found["usage"]["completion_tokens"] <= 64
    assert found["run"] == run


def test_refusals_are_json_with_their_own_words(browser: httpx.Client) -> None:
    missing = browser.get(f"{API}conversations/none")
    assert (missing.status_code, missing.json()["error"]["message"]) == (404, "You have no conversation of this id.")
    large = browser.put(
        f"{API}conversations/a", content=b"x" * (2**20 + 1), headers={"Content-Type": "application/json"}
    )
    assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
    forged = browser.put(f"{API}conversations/a", json={}, headers={"X-CSRFToken": "wrong"})
    assert (forged.status_code, forged.json()["error"]["code"]) == (403, "permission_denied")
    nobody = httpx.get(f"{browser.base_url}{API}conversations".replace("//playground", "/playground"))
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (401, "signed_out")


def test_a_file_above_the_size_of_a_page_is_kept_for_people_who_are_signed_in(browser: httpx.Client) -> None:
    content, headers = b"%PDF-1.7\n" + b"x" * 2_000_000, {"Content-Type": "application/pdf"}
    kept = browser.post(f"{API}files", content=content, headers=headers)
    assert (kept.status_code, kept.json().get("num_bytes")) == (200, len(content)), kept.text
    assert browser.get(f"{API}files/{kept.json()['id']}").content == content
    large = browser.post(f"{API}files", content=b"x" * (10 * 2**20 + 1), headers=headers)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
    address = f"{browser.base_url}{API}files".replace("//playground", "/playground")
    assert httpx.post(address, content=content, headers=headers).status_code == 413
