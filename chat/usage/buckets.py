"""Sums of usage in buckets of an hour or a day (UTC), told apart by any columns: what programs ask for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet, Sum

SUMMED = ("num_requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos", "audio_ms")


@dataclass(frozen=True, slots=True)
class Buckets:
    """Adjacent periods of one length, in hours since 1970. `end_h` is the first hour that is not part of them."""

    length_h: int
    start_h: int
    end_h: int

    def starts(self) -> range:
        return range(self.start_h, self.end_h, self.length_h)


def buckets_read(
    rows: QuerySet[Any], buckets: Buckets, columns: Sequence[str], *, most_rows: int
) -> tuple[dict[int, list[dict[str, Any]]], int]:
    """Return the sums of each bucket by the values of `columns`, in their order, and the hour at which they end.

    They end before the bucket that follows the `most_rows`th row; a bucket is never split. Empty buckets are left out.
    """
    some = rows.filter(length_h=buckets.length_h, start_h__gte=buckets.start_h, start_h__lt=buckets.end_h)
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    sums = {name: Sum(name) for name in SUMMED}
    sorted_rows = some.order_by().values("start_h", *columns).annotate(**sums).order_by("start_h", *columns)
    for number, row in enumerate(sorted_rows.iterator(chunk_size=1_000)):
        if number >= most_rows and row["start_h"] not in found:
            return found, row["start_h"]
        found[row["start_h"]].append(row)
    return found, buckets.end_h
