"""Usage and costs by OpenAI's published client: they are those of the console, and those of the organisation alone."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from channels.db import database_sync_to_async

from chat.models import ServiceAccount
from chat.usage.services import usage_records_write
from tests.chat.organization.conftest import World
from tests.chat.organization.test_projects import code_of
from tests.chat.records import NOON, record

HOUR, DAY = 3_600, 86_400
MIDNIGHT = int(NOON) - 12 * HOUR


@database_sync_to_async
def runs(world: World, *each: dict[str, Any]) -> None:
    """Store runs of the organisation, unless they say otherwise."""
    where = {"org_id": world.org.pk, "project_id": world.project.pk, "route": "/v1/chat/completions"}
    usage_records_write([record(**(where | fields)) for fields in each])


async def test_days_are_summed_and_told_apart(world: World, openai: Any) -> None:
    program = await ServiceAccount.objects.acreate(project=world.project, name="deploy")
    await runs(
        world,
        {"account_id": world.ann.pk},
        {"account_id": program.usage_id, "key_public_id": "deploy000001"},
        {"model": "large", "at_s": NOON + DAY},
        {"route": "/v1/embeddings", "completion_tokens": 0},
        {"route": "/v2/rerank", "completion_tokens": 0},
        {"route": "/v1/audio/transcriptions", "media": {"audio": {"number": 1, "bytes": 9, "duration_ms": 2500}}},
        {"route": "/v1/audio/translations", "media": {"audio": {"number": 1, "bytes": 9, "duration_ms": 1400}}},
        {"org_id": world.other.org.pk, "project_id": world.other.pk},
    )
    usage = openai.usage
    page = await usage.completions(start_time=MIDNIGHT, end_time=MIDNIGHT + 3 * DAY)
    assert [(one.start_time, one.end_time) for one in page.data] == [
        (MIDNIGHT + day * DAY, MIDNIGHT + (day + 1) * DAY) for day in range(3)
    ]
    sums = [[(one.num_model_requests, one.input_tokens, one.output_tokens) for one in day.results] for day in page.data]
    assert sums == [[(2, 20, 14)], [(1, 10, 7)], []]
    (first,) = page.data[0].results
    assert (first.input_cached_tokens, first.input_uncached_tokens, first.project_id, first.model) == (
        8,
        12,
        None,
        None,
    )
    embedded = await usage.embeddings(start_time=MIDNIGHT, end_time=MIDNIGHT + DAY)
    assert [(one.num_model_requests, one.input_tokens) for one in embedded.data[0].results] == [(2, 20)]

    heard = await usage.audio_transcriptions(start_time=MIDNIGHT, end_time=MIDNIGHT + DAY)
    sums = [(one.object, one.num_model_requests, one.seconds) for one in heard.data[0].results]
    assert sums == [("organization.usage.audio_transcriptions.result", 2, 4)]

    groups = ["user_id", "api_key_id", "project_id", "model"]
    page = await usage.completions(start_time=MIDNIGHT, end_time=MIDNIGHT + DAY, group_by=groups)
    assert {(one.user_id, one.api_key_id, one.project_id, one.model) for one in page.data[0].results} == {
        (f"user-{world.ann.pk}", "key_accept0001", f"proj_{world.project.pk}", "small"),
        (f"svc_acct_{program.pk}", "key_deploy000001", f"proj_{world.project.pk}", "small"),
    }


@pytest.mark.parametrize(
    ("filters", "requests"),
    [
        ({"user_ids": ["user-{ann}"]}, 1),
        ({"user_ids": ["user-{ann}", "svc_acct_9"]}, 2),
        ({"api_key_ids": ["key_accept0002"]}, 1),
        ({"models": ["large"]}, 1),
        ({"models": ["large", "small"]}, 3),
        ({"project_ids": ["proj_{project}"]}, 3),
        ({"project_ids": ["proj_{other}"]}, 0),
    ],
)
async def test_filters_choose(world: World, openai: Any, filters: Any, requests: int) -> None:
    names = {"ann": world.ann.pk, "project": world.project.pk, "other": world.other.pk}
    await runs(
        world, {"account_id": world.ann.pk}, {"account_id": -9}, {"model": "large", "key_public_id": "accept0002"}
    )
    await runs(world, {"org_id": world.other.org.pk, "project_id": world.other.pk})
    asked = {name: [one.format(**names) for one in values] for name, values in filters.items()}
    page = await openai.usage.completions(start_time=MIDNIGHT, end_time=MIDNIGHT + DAY, **asked)
    assert sum(one.num_model_requests for one in page.data[0].results) == requests


async def test_pages_lead_through_every_bucket_once(world: World, openai: Any) -> None:
    await runs(world, *({"at_s": NOON + hour * HOUR} for hour in (0, 1, 5)))
    seen: list[Any] = []
    page, asked = None, {"start_time": int(NOON) + 1800, "end_time": int(NOON) + 6 * HOUR, "bucket_width": "1h"}
    while True:
        more = {} if page is None else {"page": page}
        answer = await openai.usage.completions(**asked, limit=4, **more)
        seen += [(one.start_time, sum(each.num_model_requests for each in one.results)) for one in answer.data]
        page = answer.next_page
        assert answer.has_more == (page is not None)
        if page is None:
            break
    assert seen == [(int(NOON) + hour * HOUR, int(hour in (0, 1, 5))) for hour in range(6)]


async def test_costs_are_those_of_the_sums_to_the_last_billionth(world: World, openai: Any) -> None:
    await runs(world, {}, {"model": "large"}, {"route": "/v1/embeddings"})

    def priced() -> int:
        from chat.usage.models import UsageSum

        UsageSum.objects.filter(org_id=world.org.pk).update(cost_nanos=123_456_789)
        return UsageSum.objects.filter(length_h=24).count()

    count = await database_sync_to_async(priced)()
    page = await openai.usage.costs(start_time=MIDNIGHT, end_time=MIDNIGHT + DAY)
    (one,) = page.data[0].results
    assert (one.object, one.amount.currency) == ("organization.costs.result", "usd")
    assert one.amount.value == count * 123_456_789 / 10**9
    page = await openai.usage.costs(start_time=MIDNIGHT, end_time=MIDNIGHT + DAY, group_by=["line_item", "project_id"])
    assert [(one.line_item, one.project_id) for one in page.data[0].results] == [
        (name, f"proj_{world.project.pk}") for name in ("large", "small")
    ]
    page = await openai.usage.costs(start_time=MIDNIGHT, end_time=MIDNIGHT + DAY, line_items=["large"])
    assert page.data[0].results[0].amount.value == 123_456_789 / 10**9


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("usage/completions", "start_time"),
        ("usage/completions?start_time=soon", "start_time"),
        ("usage/completions?start_time=-1", "start_time"),
        ("usage/completions?start_time=99999999999999", "start_time"),
        ("usage/completions?start_time=10&end_time=10", "end_time"),
        ("usage/completions?start_time=0&bucket_width=1m", "bucket_width"),
        ("usage/completions?start_time=0&bucket_width=1h&limit=169", "limit"),
        ("usage/completions?start_time=0&limit=32", "limit"),
        ("usage/completions?start_time=0&group_by[]=batch", "group_by"),
        ("usage/completions?start_time=0&batch=true", "batch"),
        ("usage/completions?start_time=0&page=page_1", "page"),
        ("usage/completions?start_time=0&page=next", "page"),
        ("usage/completions?start_time=0&project_ids[]=7", "project_ids"),
        ("usage/completions?start_time=0&user_ids=ann", "user_ids"),
        ("usage/completions?start_time=0&api_key_ids[]=accept0001", "api_key_ids"),
        ("costs?start_time=0&bucket_width=1h", "bucket_width"),
        ("costs?start_time=0&group_by=model", "group_by"),
    ],
)
async def test_what_cannot_be_answered_is_refused_by_name(api: httpx.AsyncClient, query: str, param: str) -> None:
    answer = await api.get(f"/v1/organization/{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


async def test_minutes_are_refused_with_the_reason(world: World, openai: Any) -> None:
    assert await code_of(openai.usage.completions(start_time=MIDNIGHT, bucket_width="1m")) == (400, "bucket_width")


async def test_a_page_ends_where_it_has_many_results(
    world: World, openai: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat.organization.usage.MAX_ROWS", 2)
    days = (0, 0, 0, 2, 3)
    await runs(world, *({"model": f"m{n}", "at_s": NOON + day * DAY} for n, day in enumerate(days)))
    asked = {"start_time": MIDNIGHT, "end_time": MIDNIGHT + 4 * DAY, "group_by": ["model"]}
    first = await openai.usage.completions(**asked)
    assert [len(day.results) for day in first.data] == [3, 0]
    assert first.has_more
    second = await openai.usage.completions(**asked, page=first.next_page)
    assert [len(day.results) for day in second.data] == [1, 1]
    assert (second.has_more, second.next_page) == (False, None)
