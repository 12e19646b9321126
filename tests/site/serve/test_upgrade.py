"""An installation of the previous version starts under this one without help and loses nothing.

`installation_0_1.tar.xz` is the data directory of such a version after a day of use, without logs and static files: one
organisation, one key, a stored chat completion, a stored response, a finished batch, and the request log of all of
them.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.chaos.inspection import request_log
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

BEFORE = Path(__file__).with_name("installation_0_1.tar.xz")
KEY = "lc_accept0001_" + "ab" * 24
STORED_CHAT = "chatcmpl-0de4eb45cb880e236990700857bf964f"
STORED_RESPONSE = "resp_93817895d4a9e08955639d9d7cb85ea4"
BATCH = "batch_11e572eea751ddf241bb0a96e7af6677"


def test_an_installation_of_the_previous_version_starts_and_loses_nothing(tmp_path: Path) -> None:
    with tarfile.open(BEFORE) as archive:
        archive.extractall(tmp_path, filter="data")
    environment = {
        "LIGHTCONE_STEP_TOKENS": "256",  # an old name
        "LIGHTCONE_MODEL": str(tmp_path / "missing.gguf"),  # stored data is read without a model
        "LIGHTCONE_LOG_DAYS": "3650",
        "LIGHTCONE_STORE_DAYS": "3650",
    }
    served = ServedLightcone(tmp_path, environment, api_key=KEY, model="missing")
    served.start()
    try:
        served.wait_for(lambda: served.get("/v1/models")[0] == 200, timeout_s=60, what="the key to open")
        kept = json.loads(served.get(f"/v1/chat/completions/{STORED_CHAT}")[2])
        assert kept["choices"][0]["message"]["content"] == "Hello there."
        assert kept["metadata"] == {"topic": "old"}
        assert json.loads(served.get(f"/v1/responses/{STORED_RESPONSE}")[2])["status"] in ("completed", "incomplete")
        batch = json.loads(served.get(f"/v1/batches/{BATCH}")[2])
        assert (batch["status"], batch["request_counts"]["completed"]) == ("completed", 1)
        assert [row["outcome"] for row in request_log(served)] == ["finished"] * 3
    finally:
        served.stop()
    assert served.console().count("LIGHTCONE_STEP_TOKENS is now called LIGHTCONE_MAX_NUM_BATCHED_TOKENS") == 1
    assert served.processes_left() == []
