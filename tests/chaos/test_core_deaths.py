"""The core of a worker dies again and again: the worker is replaced, and no stream is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.chaos.inspection import pid_of, request_log
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(900)]

NUM_TOKENS = 128
"""More than a core computes between its first token and its death; four such streams take less than ten minutes."""
PATIENCE_S = 180
"""More than everything takes on a busy machine."""


def stream_and_kill(served: ServedLightcone, name: str) -> list[str]:
    """Return the lines of a stream whose core is killed at the first token."""
    core = pid_of(served, "core")
    assert core is not None
    body = {
        "messages": [{"role": "user", "content": "Tell me of the sea."}],
        "max_tokens": NUM_TOKENS,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Authorization": f"Bearer {served.api_key}", "X-Request-Id": name}
    with httpx.stream(
        "POST", f"{served.api_url}/chat/completions", json=body, headers=headers, timeout=PATIENCE_S
    ) as answer:
        assert answer.status_code == 200, answer.read()
        lines = answer.iter_lines()
        said = [next(line for line in lines if '"content"' in line)]
        os.kill(core, signal.SIGKILL)
        return said + [line for line in lines if line.startswith("data: ")]


def test_a_model_with_a_dying_core_is_loaded_anew_and_its_streams_continue(tmp_path: Path) -> None:
    """At the fourth death within ten minutes the worker stayed `failed` and answered 503 until it was killed."""
    served = ServedLightcone(tmp_path)
    with served.running():
        old, num_deaths = pid_of(served, "worker"), 0
        while num_deaths < 4:
            # A stream to each core, as a run that was in the step of two deaths is held for their cause.
            lines = stream_and_kill(served, f"death-{num_deaths}")
            assert lines[-1] == "data: [DONE]", lines[-3:]
            assert f'"completion_tokens":{NUM_TOKENS}' in lines[-2].replace(" ", "")
            num_deaths += 1
        served.wait_for(lambda: served.get("/health/ready")[0] == 200, timeout_s=90, what="its model")
        assert pid_of(served, "worker") == old, "other models of the worker go on"
        log = (served.data_dir / "logs" / "model.log").read_text()  # all of it, as the next core logs much
        assert "this worker hands over" in log
        served.wait_for(lambda: len(request_log(served)) == num_deaths, timeout_s=30, what="the rows")
        assert [(row["outcome"], row["completion_tokens"]) for row in request_log(served)] == [
            ("finished", NUM_TOKENS)
        ] * num_deaths
        assert [row["attempts"] for row in request_log(served)] == [1, 1, 1, 2]
    assert served.processes_left() == []
