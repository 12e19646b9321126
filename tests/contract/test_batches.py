"""Files and batches by the published OpenAI client against a served Lightcone."""

from __future__ import annotations

import json
import time

import openai
import pytest

pytestmark = pytest.mark.live

ENDPOINT = "/v1/chat/completions"
ENDS = ("completed", "failed", "expired", "cancelled")
BAD = 2


@pytest.fixture(scope="module")
def client(lightcone):
    with openai.OpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0) as made:
        yield made


def request(number, model, **fields):
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"Say {number}."}],
        "max_tokens": 4,
        "temperature": 0,
        **fields,
    }
    return {"custom_id": f"r{number}", "method": "POST", "url": ENDPOINT, "body": body}


def create(client, lines, endpoint=ENDPOINT, **fields):
    content = "\n".join(json.dumps(line) for line in lines).encode()
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **fields)


def wait(client, batch, states=ENDS):
    """Poll, as clients do, until the batch is in one of these states: until it has ended."""
    deadline = time.monotonic() + 120
    while batch.status not in states:
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def lines_of(client, file_id):
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


def test_a_batch_is_answered_as_its_requests_would_be(client, lightcone):
    requests = [request(number, "no-such-model" if number == BAD else lightcone.model) for number in range(6)]
    batch = wait(client, create(client, requests, metadata={"job": "7"}))
    assert batch.status == "completed"
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (6, 5, 1)
    assert batch.metadata == {"job": "7"}
    output, errors = lines_of(client, batch.output_file_id), lines_of(client, batch.error_file_id)
    assert [line["custom_id"] for line in output] == [f"r{number}" for number in range(6) if number != BAD]
    for line in output:
        answer = line["response"]["body"]
        assert answer["id"] == f"chatcmpl-{line['response']['request_id']}"
        assert answer["usage"]["completion_tokens"] <= 4
    assert batch.usage.output_tokens == sum(line["response"]["body"]["usage"]["completion_tokens"] for line in output)
    (error,) = errors
    assert (error["custom_id"], error["response"]["status_code"]) == (f"r{BAD}", 404)
    assert error["response"]["body"]["error"]["code"] == "model_not_found"


BODIES = {
    "/v1/completions": {"prompt": "Hello", "max_tokens": 2},
    "/v1/embeddings": {"input": "Hello"},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 16, "store": False},
}


@pytest.mark.parametrize("endpoint", BODIES)
def test_other_endpoints_have_batches_too(client, lightcone, endpoint):
    body = {"model": lightcone.model, **BODIES[endpoint]}
    batch = wait(
        client, create(client, [{"custom_id": "a", "method": "POST", "url": endpoint, "body": body}], endpoint)
    )
    assert batch.status == "completed", batch
    (line,) = lines_of(client, batch.output_file_id)
    assert line["response"]["status_code"] == 200
    assert batch.usage.input_tokens > 0


def test_a_cancelled_batch_keeps_its_answers(client, lightcone):
    """The lines are long enough that some are unfinished at the cancel."""
    batch = create(client, [request(number, lightcone.model, max_tokens=200, ignore_eos=True) for number in range(100)])
    batch = wait(client, batch, ("in_progress", *ENDS))
    client.batches.cancel(batch.id)
    batch = wait(client, batch)
    assert batch.status == "cancelled"
    assert batch.cancelled_at
    assert batch.request_counts.completed < 100
    assert client.chat.completions.create(
        model=lightcone.model, messages=[{"role": "user", "content": "Hi"}], max_tokens=1
    ).choices


def test_a_bad_input_is_reported_by_line(client):
    batch = wait(
        client, create(client, [{"custom_id": "a"}, {"custom_id": "b", "method": "POST", "url": "/v1/x", "body": {}}])
    )
    assert batch.status == "failed"
    assert [(error.line, error.code) for error in batch.errors.data] == [
        (1, "invalid_method"),
        (2, "mismatched_endpoint"),
    ]
