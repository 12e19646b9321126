"""Each limit and budget as a client of a served Lightcone meets it, and 200 calls at once on a nearly spent budget."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.served import ROOT, ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

MAKE = """
import json, sys
import django
django.setup()
from chat.access.chat_projects import default_project
from chat.access.keys import key_create
from chat.access.models import Project
from chat.budgets.models import Budget
from chat.budgets.services import budget_save
from chat.access.configuration import configuration_touch
asked = json.loads(sys.argv[1])
first = default_project()
project, _ = Project.objects.get_or_create(org=first.org, name=asked["project"])
Project.objects.filter(pk=project.pk).update(**asked.get("limits", {}))
if "budget" in asked:
    budget_save(budget=Budget(project=project, name="nearly", is_hard=True, **asked["budget"]))
configuration_touch()
sys.stdout.write(key_create(project=project, name="of a test", **asked.get("key", {}))[1])
"""
SPENT = """
import sys
import django
django.setup()
from chat.budgets.models import BudgetSpend
row = BudgetSpend.objects.filter(budget__project__name=sys.argv[1]).first()
sys.stdout.write(str(row.spent if row else 0))
"""
BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


def run(served: ServedLightcone, script: str, argument: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, argument],
        cwd=ROOT,
        env=served.environment_of_all | {"DJANGO_SETTINGS_MODULE": "lightcone_site.settings"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture
def http(lightcone: ServedLightcone) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=lightcone.base_url, timeout=240, limits=httpx.Limits(max_connections=300)) as client:
        yield client


def ask(http: httpx.Client, key: str, **fields: Any) -> httpx.Response:
    return http.post("/v1/chat/completions", json=BODY | fields, headers={"Authorization": f"Bearer {key}"})


@pytest.mark.parametrize(
    ("limits", "key", "sentence"),
    [
        ({"requests_per_minute": 1}, {}, "The project 'rpm' has used its 1 requests per minute"),
        ({}, {"requests_per_day": 1}, "This API key has used its 1 requests per day"),
        ({"output_tokens_per_minute": 4}, {}, "4 output tokens per minute"),
        ({}, {"input_tokens_per_minute": 2}, "2 input tokens per minute"),
        ({"tokens_per_day": 5}, {"tokens_per_minute": 1000}, "5 tokens per day"),
    ],
    ids=["rpm", "rpd", "output", "input", "tokens"],
)
def test_the_tightest_limit_refuses_by_name(
    lightcone: ServedLightcone,
    http: httpx.Client,
    request: pytest.FixtureRequest,
    limits: dict[str, int],
    key: dict[str, int],
    sentence: str,
) -> None:
    name = request.node.callspec.id
    text = run(lightcone, MAKE, json.dumps({"project": name, "limits": limits, "key": key}))
    first = ask(http, text)
    assert first.status_code == 200, first.text
    assert any(line.startswith("x-ratelimit-limit-") for line in first.headers)
    second = ask(http, text)
    assert (second.status_code, second.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert sentence in second.json()["error"]["message"]
    assert 1 <= int(second.headers["Retry-After"]) <= 60


def test_a_context_above_the_limit_is_refused(lightcone: ServedLightcone, http: httpx.Client) -> None:
    key = run(lightcone, MAKE, json.dumps({"project": "context", "limits": {"max_context": 8}}))
    answer = ask(http, key, messages=[{"role": "user", "content": "one two three four five six seven eight nine ten"}])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "allow a context of 8 tokens" in answer.json()["error"]["message"]


def test_a_lifetime_budget_caps_an_open_answer_and_then_is_402(lightcone: ServedLightcone, http: httpx.Client) -> None:
    key = run(lightcone, MAKE, json.dumps({"project": "cap", "budget": {"amount": 420, "window": "lifetime"}}))
    text = "Count from one to one thousand in words, and never stop."
    answer = ask(http, key, messages=[{"role": "user", "content": text}], max_tokens=None, ignore_eos=True)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert answer.json()["usage"]["total_tokens"] <= 420
    refused = ask(http, key, messages=[{"role": "user", "content": text * 5}])
    assert (refused.status_code, refused.json()["error"]["code"]) == (402, "insufficient_credits")


def test_two_hundred_calls_at_once_spend_no_more_than_is_left(lightcone: ServedLightcone, http: httpx.Client) -> None:
    amount = 1_400
    budget = {"amount": amount, "window": "month"}
    key = run(lightcone, MAKE, json.dumps({"project": "nearly", "budget": budget}))
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda _: ask(http, key), range(200)))
    counts = Counter(answer.status_code for answer in answers)
    assert set(counts) <= {200, 429}, counts
    assert counts[200] >= 3
    used = sum(answer.json()["usage"]["total_tokens"] for answer in answers if answer.status_code == 200)
    assert used <= amount
    lightcone.wait_for(
        lambda: run(lightcone, SPENT, "nearly") == str(used), timeout_s=60, what="all that was used to be in SQL"
    )
