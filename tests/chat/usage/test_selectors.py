"""Sums over time have no gaps, and percentiles lie in the bucket of the exact value."""

from __future__ import annotations

import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.usage.models import TTFT_BOUNDS_MS, TTFT_COLUMNS, UsageHour
from chat.usage.selectors import histogram_percentile, usage_summary
from chat.usage.services import ttft_column, usage_records_write
from tests.chat.records import NOON, record

NOW = dt.datetime.fromtimestamp(NOON + 1800, dt.UTC)


@given(
    times_ms=st.lists(st.floats(min_value=0.1, max_value=19_999), min_size=1, max_size=200),
    share=st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_a_percentile_lies_in_the_bucket_of_the_exact_one(times_ms: list[float], share: float) -> None:
    """Oracle: the nearest-rank percentile of the sorted values."""
    counts = [sum(ttft_column(value) == column for value in times_ms) for column in TTFT_COLUMNS]
    exact = sorted(times_ms)[math.ceil(len(times_ms) * share - 1e-9) - 1]
    found = histogram_percentile(counts, share)
    index = TTFT_COLUMNS.index(ttft_column(exact))
    assert found is not None
    assert (0, *TTFT_BOUNDS_MS)[index] <= found <= TTFT_BOUNDS_MS[index]


def test_percentiles_are_absent_without_runs_and_capped_at_the_last_bound() -> None:
    assert histogram_percentile([0] * len(TTFT_COLUMNS), 0.5) is None
    assert histogram_percentile([0] * (len(TTFT_COLUMNS) - 1) + [3], 0.5) == TTFT_BOUNDS_MS[-1]


@pytest.mark.django_db
def test_a_day_has_24_points_and_a_month_30() -> None:
    usage_records_write(
        [record(), record(at_s=NOON - 3600), record(at_s=NOON - 86_400), record(at_s=NOON - 29 * 86_400)]
    )
    day = usage_summary(of=UsageHour.objects.all(), now=NOW, hours=24)
    assert [point.num_requests for point in day.points] == [0] * 22 + [1, 1]
    assert [later.start - earlier.start for earlier, later in zip(day.points, day.points[1:], strict=False)] == [
        dt.timedelta(hours=1)
    ] * 23
    month = usage_summary(of=UsageHour.objects.all(), now=NOW, days=30)
    assert [point.num_requests for point in month.points] == [1] + [0] * 27 + [1, 2]
    assert month.total.completion_tokens == 28
    assert month.by_model == (("small", 4, 28, 0),)


@pytest.mark.django_db
def test_disconnected_clients_do_not_count_as_errors() -> None:
    """Four closed tabs showed as four errors in the overview."""
    left = [record(status=499, outcome="disconnected") for _ in range(4)]
    usage_records_write([record(), record(status=404, outcome="rejected"), record(status=503, outcome="failed"), *left])
    for usage in (
        usage_summary(of=UsageHour.objects.all(), now=NOW, hours=24),
        usage_summary(of=UsageHour.objects.all(), now=NOW, days=30),
    ):
        total = usage.total
        assert (
            total.num_requests,
            total.num_client_errors,
            total.num_server_errors,
            total.num_left,
            total.num_answered,
        ) == (7, 1, 1, 4, 1)
