"""Each run is one row and is counted once, after any number of deliveries."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from chat.access.keys import key_create
from chat.models import ApiKey, Project, RequestLog, UsageSum
from chat.relay.state.keys import run_id_create, run_id_floor
from chat.usage.models import DAY, HOUR
from chat.usage.retention import request_logs_prune
from chat.usage.services import TerminalRecord, usage_records_write
from tests.chat.records import NOON, record
from tests.examples import examples

pytestmark = pytest.mark.django_db


def test_a_record_becomes_one_row_with_its_figures() -> None:
    sent = record(
        is_stream=True, client_request_id="chatcmpl-1", metadata={"job": "7"}, retry_count=2, patience_s=600.0
    )
    assert len(usage_records_write([sent])) == 1
    log = RequestLog.objects.get(pk=UUID(hex=sent["run_id"]))
    assert (log.prompt_tokens, log.cached_tokens, log.completion_tokens) == (10, 4, 7)
    assert (log.status, log.outcome, log.finish_reason, log.is_stream, log.attempts) == (
        200,
        "finished",
        "stop",
        True,
        1,
    )
    assert log.queue_ms == pytest.approx(20, abs=0.01)
    assert log.ttft_ms == pytest.approx(120, abs=0.01)
    assert log.duration_ms == pytest.approx(1000, abs=0.01)
    assert log.arrived_at == dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    assert log.metadata == {"job": "7"}
    assert (log.retry_count, log.patience_s) == (2, 600.0)


def test_a_second_delivery_counts_nothing_twice() -> None:
    """The writer may die between its commit and the acknowledgement; the stream then delivers the batch again."""
    batch = [record() for _ in range(20)]
    assert len(usage_records_write(batch)) == 20
    assert len(usage_records_write(batch + [record()] * 3)) == 1
    hour = UsageSum.objects.get(length_h=HOUR)
    assert (hour.num_requests, hour.prompt_tokens, hour.completion_tokens) == (21, 210, 147)
    assert RequestLog.objects.count() == 21


@pytest.mark.parametrize("is_together", [True, False])
def test_an_outcome_correction_keeps_the_figures_of_its_row(is_together: bool) -> None:
    """The run had finished after the server broke its answer off; deliveries may repeat."""
    sent = record()
    correction = {"run_id": sent["run_id"], "told": "interrupted"}
    for batch in [[sent, correction]] if is_together else [[sent], [correction], [correction, sent]]:
        usage_records_write([record(), *batch])
    log = RequestLog.objects.get(pk=UUID(hex=sent["run_id"]))
    assert (log.outcome, log.status, log.error_code, log.completion_tokens) == ("interrupted", 503, "", 7)
    num_others = RequestLog.objects.count() - 1
    for length_h in (HOUR, DAY):
        others, failed = UsageSum.objects.filter(length_h=length_h).order_by("status_class")
        assert (others.status_class, others.num_requests, others.num_ours) == ("answered", num_others, 0)
        assert others.completion_tokens == 7 * num_others
        assert (failed.status_class, failed.num_requests, failed.num_ours) == ("ours", 1, 1)
        assert failed.completion_tokens == 7


def test_a_rejected_request_is_counted_and_adds_no_tokens() -> None:
    usage_records_write([record(status=400, outcome="rejected", error_code="context_length_exceeded")])
    hour = UsageSum.objects.get(length_h=HOUR)
    assert (hour.num_requests, hour.num_theirs, hour.prompt_tokens, hour.duration_ms) == (1, 1, 0, 0)


def test_an_unreadable_record_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    bad: list[Any] = [
        {},
        record(run_id="no id"),
        record(arrived_at=float("nan")),
        record(status="x"),
        record(metadata=7),
    ]
    assert len(usage_records_write([*bad, record()])) == 1
    assert len(caplog.records) == len(bad)


def test_records_of_a_newer_release_are_understood() -> None:
    assert len(usage_records_write([record() | {"field_of_tomorrow": 1}])) == 1


def test_client_texts_are_truncated_sanitised_and_masked() -> None:
    secret = "lc_accept0001_" + "0123456789abcdef" * 3
    usage_records_write([record(user_label="a\0\ud800" * 400, user_agent=f"curl {secret}", metadata={"k\0": secret})])
    log = RequestLog.objects.get()
    assert len(log.user_label) == 256
    assert "\0" not in log.user_label
    assert log.user_agent == "curl lc_accept0001_***"
    assert log.metadata == {"k\ufffd": "lc_accept0001_***"}


def test_clocks_that_disagree_never_give_negative_times() -> None:
    usage_records_write([record(first_token_at=NOON - 5, ended_at=None)])
    log = RequestLog.objects.get()
    assert log.ttft_ms == 0
    assert log.duration_ms is None


def test_last_use_of_a_key_is_recorded_and_never_moves_back(project: Project) -> None:
    key, _ = key_create(project=project, name="used")
    usage_records_write([record(key_public_id=key.public_id), record(key_public_id=key.public_id, at_s=NOON + 60)])
    usage_records_write([record(key_public_id=key.public_id, at_s=NOON - 60)])
    assert ApiKey.objects.get().last_used_at.timestamp() == NOON + 60


def test_writing_a_batch_of_records_takes_few_queries(django_assert_max_num_queries: Any) -> None:
    batch = [record() for _ in range(500)]
    with django_assert_max_num_queries(27):
        usage_records_write(batch)


def test_a_record_round_trips_through_a_dictionary() -> None:
    sent = record(metadata={"a": "b"})
    assert asdict(TerminalRecord.from_dict(sent)) == sent


def test_old_logs_are_pruned_in_batches_and_sums_kept() -> None:
    usage_records_write([record(at_s=NOON + minute * 60) for minute in range(10)])
    assert request_logs_prune(before=dt.datetime.fromtimestamp(NOON + 5 * 60, dt.UTC), batch_rows=2, pause_s=0) == 5
    assert RequestLog.objects.count() == 5
    assert min(log.arrived_at for log in RequestLog.objects.all()).timestamp() == NOON + 300
    assert UsageSum.objects.get(length_h=DAY).num_requests == 10


@given(first_s=st.integers(0, 2**37), later_ms=st.integers(1, 10**9))
def test_run_ids_sort_by_time(first_s: int, later_ms: int) -> None:
    first, later = run_id_create(at_s=first_s), run_id_create(at_s=first_s + later_ms / 1000 + 0.001)
    assert first < later
    assert UUID(hex=first).version == 7
    assert run_id_floor(dt.datetime.fromtimestamp(first_s, dt.UTC)) <= UUID(hex=run_id_create(at_s=first_s))


class TestAnyDelivery(TestCase):
    """Property: however records are repeated and split over batches, rows and sums are those of the distinct runs."""

    @given(picks=st.lists(st.lists(st.integers(0, 7), max_size=12), max_size=6))
    @examples(30)
    def test_sums_equal_the_distinct_runs(self, picks: list[list[int]]) -> None:
        runs = [record(at_s=NOON + 1800 * index, completion_tokens=index + 1) for index in range(8)]
        seen: set[int] = set()
        for batch in picks:
            written = usage_records_write([runs[index] for index in batch])
            assert {one.run_id for one in written} == {runs[index]["run_id"] for index in set(batch) - seen}
            assert len(written) == len(set(batch) - seen)
            seen |= set(batch)
        hours = list(UsageSum.objects.filter(length_h=HOUR))
        assert sum(hour.num_requests for hour in hours) == len(seen) == RequestLog.objects.count()
        assert sum(hour.completion_tokens for hour in hours) == sum(index + 1 for index in seen)
