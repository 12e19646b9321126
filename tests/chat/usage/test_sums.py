"""The sums equal those of a slow reference, whatever ends, comes again, is corrected or is made anew."""

from __future__ import annotations

import datetime as dt
import math
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.db.models import Sum
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from chat.models import AuditEntry, RequestLog, UsageSum, UsageTotal
from chat.relay.state.keys import run_id_create
from chat.usage import sums
from chat.usage.measures import percentile
from chat.usage.models import DAY, HOUR, TTFT_BOUNDS_MS
from chat.usage.retention import request_logs_prune
from chat.usage.services import usage_records_write
from chat.usage.sums import usage_rebuild
from tests.chat.records import NOON, record
from tests.chat.usage.reference import expected, plain, stored
from tests.examples import examples

DAY_OF_NOON = dt.date(2026, 1, 1)
NUM_ROWS = int(os.environ.get("LIGHTCONE_TEST_ROWS", "100000"))
"""Of the test that reconciles many rows. 1,000,000 take a quarter of an hour."""
ENDS = [
    (200, "finished"),
    (200, "stopped"),
    (400, "rejected"),
    (408, "timed_out"),
    (429, "rejected"),
    (499, "disconnected"),
    (500, "failed"),
    (503, "interrupted"),
]
RUNS = st.fixed_dictionaries(
    {
        "at_s": st.integers(0, 40).map(lambda step: NOON + step * 3000),
        "end": st.sampled_from(ENDS),
        "org_id": st.integers(1, 2),
        "project_id": st.integers(1, 2),
        "key_public_id": st.sampled_from(["accept0001", "accept0002", ""]),
        "account_id": st.integers(0, 2),
        "model": st.sampled_from(["small", "large"]),
        "route": st.sampled_from(["/v1/chat/completions", "/v1/embeddings"]),
        "prompt_tokens": st.integers(0, 3000),
        "completion_tokens": st.integers(0, 500),
        "reasoning_tokens": st.integers(0, 100),
        "first_s": st.one_of(st.none(), st.floats(0, 30)),
        "whole_s": st.one_of(st.none(), st.floats(0, 90)),
    }
)


def run_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the record of what a strategy has drawn."""
    at_s, (status, outcome) = fields["at_s"], fields["end"]
    first_s, whole_s = fields["first_s"], fields["whole_s"]
    others = {name: value for name, value in fields.items() if name not in ("at_s", "end", "first_s", "whole_s")}
    return record(
        at_s=at_s,
        status=status,
        outcome=outcome,
        first_token_at=None if first_s is None else at_s + first_s,
        ended_at=None if whole_s is None else at_s + whole_s,
        **others,
    )


def assert_sums_are_right() -> None:
    facts, totals = expected(RequestLog.objects.all())
    stored_facts, stored_totals = stored()
    assert stored_facts == plain(facts)
    assert stored_totals == plain(totals)


class TestAnyRuns(TestCase):
    """Property: after any deliveries and corrections the sums are those of the log, row by row."""

    @given(
        runs=st.lists(RUNS, min_size=1, max_size=12),
        picks=st.lists(st.lists(st.integers(0, 11), max_size=8), max_size=4),
        corrected=st.lists(st.tuples(st.integers(0, 11), st.sampled_from(["interrupted", "disconnected"])), max_size=3),
    )
    @examples(40)
    def test_sums_equal_the_reference(self, runs: Any, picks: list[list[int]], corrected: Any) -> None:
        records = [run_of(fields) for fields in runs]
        for batch in [range(len(records)), *picks]:
            usage_records_write([records[index % len(records)] for index in batch])
        usage_records_write(
            [{"run_id": records[i % len(records)]["run_id"], "told": outcome} for i, outcome in corrected]
        )
        assert_sums_are_right()


@pytest.mark.django_db
def test_the_sums_of_a_broken_day_are_made_anew_from_the_log() -> None:
    usage_records_write([record(at_s=NOON + hour * 3600) for hour in range(30)])
    UsageSum.objects.filter(length_h=DAY).update(prompt_tokens=1)
    UsageTotal.objects.filter(dimension="model").delete()
    call_command("usage", "rebuild", "--from", "2026-01-01", "--until", "2026-01-02")
    assert_sums_are_right()
    assert AuditEntry.objects.get(action="usage.rebuild").after["number"] == 30


@pytest.mark.django_db
def test_a_run_that_breaks_off_is_audited_with_the_days_that_it_has_done(monkeypatch: pytest.MonkeyPatch) -> None:
    usage_records_write([record(at_s=NOON + hour * 3600) for hour in range(30)])
    of_day = sums._day_rebuild

    def break_off(day: dt.date, trusts_log: bool) -> tuple[int, list[int]]:
        if day > DAY_OF_NOON:
            raise OperationalError("the disk is full")
        return of_day(day, trusts_log)

    monkeypatch.setattr(sums, "_day_rebuild", break_off)
    with pytest.raises(OperationalError):
        usage_rebuild(first=DAY_OF_NOON, last=DAY_OF_NOON + dt.timedelta(days=5))
    entry = AuditEntry.objects.get(action="usage.rebuild")
    assert entry.after == {"from": "2026-01-01", "until": "2026-01-01", "number": 12}


@pytest.mark.django_db
def test_sums_of_what_the_log_has_lost_stay(capsys: pytest.CaptureFixture[str]) -> None:
    usage_records_write([record(), record(project_id=2, at_s=NOON + 60), record(at_s=NOON + 60)])
    request_logs_prune(before=dt.datetime.fromtimestamp(NOON + 1, dt.UTC))
    before = stored()
    done = usage_rebuild(first=DAY_OF_NOON, last=DAY_OF_NOON)
    assert (done.num_requests, done.kept) == (1, ((DAY_OF_NOON, 1),))
    assert stored() == before
    call_command("usage", "rebuild", "--from", "2026-01-01", "--until", "2026-01-01", "--trust-log")
    assert_sums_are_right()
    assert UsageSum.objects.filter(length_h=DAY).aggregate(Sum("num_requests")) == {"num_requests__sum": 2}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "words", [("--from", "soon"), ("--from", "2026-01-02", "--until", "2026-01-01"), ("--from", "2001-01-01"), ()]
)
def test_days_that_cannot_be_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        call_command("usage", "rebuild", *words)


def many(number: int, *, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield records of some keys, people, models and routes over a week."""
    draw = random.Random(seed)
    for _ in range(number):
        at_s = NOON + draw.randrange(7 * 86_400)
        status, outcome = draw.choices(ENDS, (80, 5, 3, 1, 2, 5, 2, 2))[0]
        key = draw.randrange(20)
        yield record(
            at_s=at_s,
            run_id=run_id_create(at_s=at_s),
            first_token_at=at_s + draw.expovariate(4),
            ended_at=at_s + 3 + draw.expovariate(1),
            status=status,
            outcome=outcome,
            org_id=1 + key % 2,
            project_id=1 + key % 5,
            key_public_id=f"key{key:05}",
            account_id=key % 7,
            model=draw.choice(["small", "large"]),
            route=draw.choice(["/v1/chat/completions", "/v1/messages"]),
            prompt_tokens=0 if outcome == "rejected" else draw.randrange(2000),
            cached_tokens=0,
            completion_tokens=0 if outcome == "rejected" else draw.randrange(500),
        )


def assert_reconciled() -> None:
    """Compare the sums of both lengths and all dimensions with the log."""
    names = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cost_nanos")
    logged = RequestLog.objects.aggregate(**{name: Sum(name) for name in names})
    logged["num_requests"] = RequestLog.objects.count()
    asked = {name: Sum(name) for name in logged}
    for length_h in (HOUR, DAY):
        assert UsageSum.objects.filter(length_h=length_h).aggregate(**asked) == logged
        for dimension in ("all", "project", "key", "user", "model", "route", "status"):
            totals = UsageTotal.objects.filter(length_h=length_h, dimension=dimension)
            assert totals.aggregate(**asked) == logged, dimension


@pytest.mark.django_db
def test_each_key_reconciles_with_the_log() -> None:
    usage_records_write(list(many(2000)))
    assert_reconciled()
    logged = RequestLog.objects.order_by().values_list("key_public_id").annotate(Sum("completion_tokens"))
    totals = UsageTotal.objects.filter(dimension="key", length_h=DAY).order_by().values_list("value")
    assert dict(totals.annotate(Sum("completion_tokens"))) == dict(logged)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.django_db
def test_many_rows_reconcile_to_the_token() -> None:
    """A twentieth go through the writer; the others are rows of the log, which the sums are then made anew from."""
    num_copies = 19
    batch: list[dict[str, Any]] = []
    for one in many(NUM_ROWS // (num_copies + 1)):
        batch.append(one)
        if len(batch) == 500:
            assert len(usage_records_write(batch)) == 500
            batch.clear()
    assert_reconciled()
    columns = [column.column for column in RequestLog._meta.concrete_fields if not column.primary_key]
    names = ", ".join(f'"{name}"' for name in columns)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TEMP TABLE samples AS SELECT * FROM {RequestLog._meta.db_table}")
        # Version and variant of a UUID are the same in all run ids: other ones make ids that are not there yet.
        others = [(13, digit) for digit in "012345689abcdef"] + [(17, digit) for digit in "0123"]
        for place, digit in others:
            other_id = f"substr(run_id, 1, {place - 1}) || '{digit}' || substr(run_id, {place + 1})"
            cursor.execute(
                f"INSERT INTO {RequestLog._meta.db_table} (run_id, {names}) SELECT {other_id}, {names} FROM samples"
            )
    assert RequestLog.objects.count() == NUM_ROWS
    done = usage_rebuild(first=DAY_OF_NOON, last=DAY_OF_NOON + dt.timedelta(days=7))
    assert (done.num_requests, done.kept) == (NUM_ROWS, ())
    assert_reconciled()


@given(
    counts=st.lists(st.integers(0, 50), min_size=len(TTFT_BOUNDS_MS) + 1, max_size=len(TTFT_BOUNDS_MS) + 1),
    share=st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_a_percentile_lies_in_the_bucket_of_its_rank(counts: list[int], share: float) -> None:
    """Oracle: the bucket of the run with that rank, counted one by one."""
    found = percentile(counts, TTFT_BOUNDS_MS, share)
    ranked = [place for place, count in enumerate(counts) for _ in range(count)]
    if not ranked:
        assert found is None
        return
    place = ranked[math.ceil(len(ranked) * share - 1e-9) - 1]
    assert found is not None
    if place == len(TTFT_BOUNDS_MS):
        assert found == TTFT_BOUNDS_MS[-1]
    else:
        assert (0, *TTFT_BOUNDS_MS)[place] <= found <= TTFT_BOUNDS_MS[place]
