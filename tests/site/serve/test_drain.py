"""SIGTERM while an answer streams: within the drain limit the client gets all of it, then everything is gone."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

NUM_TOKENS = 150


def test_a_drain_finishes_running_streams(tmp_path: Path) -> None:
    served = ServedLightcone(tmp_path, {"LIGHTCONE_DRAIN": "60"})
    served.start()
    try:
        served.wait_until_ready()
        body = {
            "messages": [{"role": "user", "content": "Count."}],
            "max_tokens": NUM_TOKENS,
            "ignore_eos": True,
            "stream": True,
        }
        body["stream_options"] = {"include_usage": True}
        headers = {"Authorization": f"Bearer {served.api_key}"}
        url = f"{served.api_url}/chat/completions"
        with httpx.stream("POST", url, json=body, headers=headers, timeout=90.0) as answer:
            lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
            assert json.loads(next(lines))["choices"][0]["delta"]["role"] == "assistant"
            assert served.process is not None
            served.process.send_signal(signal.SIGTERM)
            frames = list(lines)
        assert frames[-1] == "[DONE]"
        assert json.loads(frames[-2])["usage"]["completion_tokens"] == NUM_TOKENS
        assert json.loads(frames[-3])["choices"][0]["finish_reason"] == "length"
        assert served.process.wait(60) == 0
    finally:
        served.stop()
    assert served.processes_left() == []
