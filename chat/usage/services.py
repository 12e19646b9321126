"""The usage writer: it turns terminal records of runs into request rows and sums, each exactly once.

A record comes from the engine's terminal event, so it is exact whatever the client did. It may arrive more than once,
as the stream is acknowledged after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, models, transaction
from django.db.models import Q

from chat.access.models import ApiKey
from chat.budgets.services import budget_spends_add
from chat.catalog.prices import price_book
from chat.masking import mask_secrets
from chat.relay.state.records import client_outcome_fields
from chat.usage.log_texts import texts_redacted
from chat.usage.measures import hours_of
from chat.usage.models import RequestLog, RequestText
from chat.usage.prices import cost_nanos
from chat.usage.sums import sums_add
from engine.api import Outcome

logger = logging.getLogger(__name__)

MAX_TRIES = 3
COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "attempts", "retry_count")


@dataclass(frozen=True, slots=True)
class TerminalRecord:
    """How one run ended. Instants are unix seconds, or None if the run never got there."""

    run_id: str
    """A UUID of version 7, in hex (relay/state/keys.py)."""
    arrived_at: float
    status: int
    outcome: str
    started_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None
    org_id: int = 0
    project_id: int = 0
    """0: none, as of the playground."""
    key_public_id: str = ""
    account_id: int | None = None
    """Whose chat or personal key asked; None: nobody's."""
    dialect: str = ""
    route: str = ""
    is_stream: bool = False
    model_asked: str = ""
    model: str = ""
    finish_reason: str = ""
    error_code: str = ""
    error_message: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    """How the answer was asked for, without texts."""
    media: dict[str, dict[str, int]] = field(default_factory=dict)
    """Number and bytes of what it had beside text, by kind."""
    limit_hit: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    attempts: int = 0
    worker: str = ""
    client_request_id: str = ""
    user_label: str = ""
    user_agent: str = ""
    address: str = ""
    retry_count: int = 0
    """How often the client's library had sent the request before."""
    patience_s: float | None = None
    """The client's read time-out; None if it sends none."""
    metadata: dict[str, str] = field(default_factory=dict)
    batch_id: str = ""
    texts: bytes = b""
    """What was asked and answered, where that is kept (chat/relay/state/kept_texts.py)."""
    budgets: dict[str, str] = field(default_factory=dict)
    """The window of each budget that the run counts to, by the budget's id."""

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> TerminalRecord:
        """Read a record. Ignore unknown names, so that an older writer reads newer records. Raises TypeError."""
        return cls(**{name: record[name] for name in (item.name for item in fields(cls)) if name in record})


def usage_records_write(records: list[dict[str, Any]]) -> list[TerminalRecord]:
    """Store terminal records in one transaction and return the new ones. Log and leave out what cannot be read."""
    rows: dict[UUID, RequestLog] = {}
    read: dict[UUID, TerminalRecord] = {}
    corrections: dict[UUID, str] = {}
    for raw in records:
        try:
            if "told" in raw:
                corrections[UUID(hex=raw["run_id"])] = Outcome(raw["told"]).value
                continue
            record = TerminalRecord.from_dict(raw)
            row = _row(record)
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as error:
            logger.error("usage record left out: %s", error)
            continue
        rows.setdefault(row.run_id, row)
        read.setdefault(row.run_id, record)
    texts = texts_redacted(rows.values(), {run_id: record.texts for run_id, record in read.items() if record.texts})
    for last_try in (False,) * (MAX_TRIES - 1) + (True,):
        try:
            return [read[run_id] for run_id in _write(rows, corrections, read, texts)]
        except IntegrityError:
            # Another writer stored one of these runs after the query.
            if last_try:
                raise
    raise AssertionError("unreachable")


def _write(
    rows: dict[UUID, RequestLog],
    corrections: dict[UUID, str],
    records: dict[UUID, TerminalRecord],
    texts: dict[UUID, RequestText],
) -> list[UUID]:
    """Store the rows that are new, add them to sums and budgets, note the use of keys, and correct outcomes.

    Return new ids.
    """
    with transaction.atomic():
        stored = set(RequestLog.objects.filter(run_id__in=rows).values_list("run_id", flat=True))
        new = [row for run_id, row in rows.items() if run_id not in stored]
        book = price_book({row.model for row in new})
        for row in new:
            prices = book.at(row.model, row.arrived_at + timedelta(milliseconds=row.duration_ms or 0))
            row.cost_nanos, row.price_id = cost_nanos(row, prices), prices.price_id if prices else 0
        RequestLog.objects.bulk_create(new, batch_size=500)
        if texts:
            RequestText.objects.bulk_create([texts[row.run_id] for row in new if row.run_id in texts], batch_size=100)
        sums_add(hours_of(new))
        budget_spends_add(_spends(new, records))
        for public_id, used_at in _last_uses(new).items():
            ApiKey.objects.filter(Q(last_used_at=None) | Q(last_used_at__lt=used_at), public_id=public_id).update(
                last_used_at=used_at
            )
        for row in RequestLog.objects.select_for_update().filter(run_id__in=corrections).order_by("pk"):
            _correct(row, corrections[row.run_id])
    return [row.run_id for row in new]


def _spends(
    rows: Iterable[RequestLog], records: dict[UUID, TerminalRecord]
) -> Iterator[tuple[Mapping[str, str], int, int]]:
    for row in rows:
        stamps = records[row.run_id].budgets
        if stamps and row.outcome != Outcome.REJECTED:
            yield stamps, row.prompt_tokens + row.completion_tokens, row.cost_nanos


def _correct(row: RequestLog, outcome: str) -> None:
    """Set the outcome that the client was sent, and move the row to the sums of its new status. Token counts stay."""
    corrected = client_outcome_fields(outcome)
    if row.outcome == corrected["outcome"]:
        return
    sums_add({key: {name: -amount for name, amount in sums.items()} for key, sums in hours_of([row]).items()})
    for name, value in corrected.items():
        setattr(row, name, value)
    row.save(update_fields=list(corrected))
    sums_add(hours_of([row]))


def _last_uses(rows: Iterable[RequestLog]) -> dict[str, datetime]:
    uses: dict[str, datetime] = {}
    for row in rows:
        if row.key_public_id:
            uses[row.key_public_id] = max(row.arrived_at, uses.get(row.key_public_id, row.arrived_at))
    return uses


def _row(record: TerminalRecord) -> RequestLog:
    """Make the row of a record. Texts may come from clients; they are cut to their columns and made storable."""
    texts = {item.name: _text(item, getattr(record, item.name)) for item in _TEXT_FIELDS}
    counts = {name: max(0, int(getattr(record, name))) for name in COUNTS}
    return RequestLog(
        run_id=UUID(hex=record.run_id),
        arrived_at=datetime.fromtimestamp(record.arrived_at, UTC),
        org_id=record.org_id,
        project_id=record.project_id,
        account_id=record.account_id,
        is_stream=bool(record.is_stream),
        status=int(record.status),
        queue_ms=_span_ms(record.arrived_at, record.started_at),
        ttft_ms=_span_ms(record.arrived_at, record.first_token_at),
        duration_ms=_span_ms(record.arrived_at, record.ended_at),
        patience_s=record.patience_s,
        metadata={storable_text(str(name)): storable_text(str(value)) for name, value in record.metadata.items()},
        parameters=record.parameters,
        media=record.media,
        **texts,
        **counts,
    )


_TEXT_FIELDS = tuple(item for item in RequestLog._meta.get_fields() if isinstance(item, models.CharField))


def _text(column: models.CharField[str, str], value: object) -> str:
    return storable_text("" if value is None else str(value))[: column.max_length]


def storable_text(text: str) -> str:
    """Mask keys, and replace what databases cannot store: NUL by U+FFFD, lone surrogates by `?`."""
    return mask_secrets(text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8"))


def _span_ms(start_s: float, end_s: float | None) -> float | None:
    """Return the span in ms, at least 0, as the two clocks may belong to different machines."""
    return None if end_s is None else max(0.0, (end_s - start_s) * 1000)
