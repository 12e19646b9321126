"""The database of a served Lightcone has nothing of an answer's text before it has ended, and all of it then."""

from __future__ import annotations

import json
import re
import secrets

import httpx
import pytest

from tests.contract.test_page_runs import ANSWER_TIMEOUT_S, receive_all, socket_of
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

API = "/playground/api/"
ASK = {"messages": [{"role": "user", "content": "Tell a long story."}], "max_tokens": 1500, "ignore_eos": True}
NUM_CHARS = 1000
"""Of the answer, when the database is looked at: some hundred tokens."""
SAVED_WITHIN_S = 30.0


def samples(text: str) -> set[bytes]:
    """Pieces of an answer that are stored as they are: words of one line, too long for another story to have them."""
    return {found.encode() for found in re.findall(r"[A-Za-z][A-Za-z ]{22}[A-Za-z]", text)}


def database(lightcone: ServedLightcone) -> bytes:
    """The whole database and what was written to its log and not yet to it."""
    return b"".join(path.read_bytes() for path in sorted(lightcone.data_dir.glob("lightcone.sqlite3*")))


def test_no_token_is_written_before_the_answer_has_ended(lightcone: ServedLightcone, browser: httpx.Client) -> None:
    chat, run = secrets.token_hex(12), secrets.token_hex(12)
    turns = [
        {"id": "1", "role": "user", "state": "ended", "content": "Tell a long story."},
        {"id": "2", "parent": "1", "role": "assistant", "state": "begun", "run": run},
    ]
    browser.post(f"{API}conversations/{chat}/turns", json={"conversation": {}, "turns": turns}).raise_for_status()
    text, before = "", database(lightcone)
    with socket_of(lightcone, browser) as socket:
        socket.send(json.dumps({"type": "start", "id": run, "request": ASK | {"seed": secrets.randbits(31)}}))
        while len(text) < NUM_CHARS:
            message = json.loads(socket.recv(ANSWER_TIMEOUT_S))
            assert message["type"] in ("waiting", "admitted", "delta")
            text += message.get("text", "")
        kept = database(lightcone)
        socket.send(json.dumps({"type": "stop", "id": run}))
        assert receive_all(socket)[-1]["outcome"] == "stopped", "the answer was still being written"
    assert run.encode() in kept, "the turn that began is there"
    own = {sample for sample in samples(text) if sample not in before}
    assert len(own) > 5
    assert [sample for sample in own if sample in kept] == []

    def is_saved() -> bool:
        return browser.get(f"{API}conversations/{chat}").json()["turns"][1]["state"] == "ended"

    lightcone.wait_for(is_saved, timeout_s=SAVED_WITHIN_S, what="the turn to end")
    found = database(lightcone)
    assert [sample for sample in own if sample in found] != []
