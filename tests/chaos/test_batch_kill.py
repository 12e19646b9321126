"""The maintenance worker is killed in the middle of a batch: its successor continues, with each line once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import openai
import pytest

from tests.chaos.inspection import pid_of, request_log
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

NUM_LINES = 16
AT_ONCE = 4


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    served = ServedLightcone(tmp_path_factory.mktemp("batch"), {"LIGHTCONE_BATCH_CONCURRENCY": str(AT_ONCE)})
    with served.running():
        yield served
    assert served.processes_left() == []


def line(number: int) -> str:
    body = {
        "messages": [{"role": "user", "content": f"Say {number}."}],
        "max_tokens": 16,
        "ignore_eos": True,
        "temperature": 0,
    }
    return json.dumps({"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body})


def test_a_killed_worker_loses_no_line_and_repeats_none_that_was_answered(served: ServedLightcone) -> None:
    with openai.OpenAI(api_key=served.api_key, base_url=served.api_url, max_retries=0) as client:
        content = "\n".join(line(number) for number in range(NUM_LINES)).encode()
        file = client.files.create(file=("in.jsonl", content), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        deadline = time.monotonic() + 120
        while batch.request_counts.completed < 3:
            assert time.monotonic() < deadline, batch
            batch = client.batches.retrieve(batch.id)
        victim = pid_of(served, "maintenance")
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        while batch.status != "completed":
            assert time.monotonic() < deadline + 180, batch
            time.sleep(0.5)
            batch = client.batches.retrieve(batch.id)
        output = [json.loads(text) for text in client.files.content(batch.output_file_id).text.splitlines()]
    assert [answer["custom_id"] for answer in output] == [f"r{number}" for number in range(NUM_LINES)]
    assert batch.request_counts.completed == NUM_LINES
    served.wait_for(lambda: finished(served) >= NUM_LINES, timeout_s=20, what="a row for each line")
    assert finished(served) <= NUM_LINES + AT_ONCE


def finished(served: ServedLightcone) -> int:
    """Return the finished runs of the batch; at most those running at the kill finished twice."""
    return sum(bool(row["batch_id"]) and row["outcome"] == "finished" for row in request_log(served))
