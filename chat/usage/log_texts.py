"""Texts of requests: redacted and stored with the usage record, where the project keeps them, and read again."""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from chat.access.models import Project
from chat.audit.services import Subject, audit_record
from chat.redaction import Redaction, RedactionTooSlow
from chat.relay.state.kept_texts import texts_unpacked
from chat.usage.models import RequestLog, RequestText

logger = logging.getLogger(__name__)

BATCH_S = 4.0
"""The most that redaction may take of one turn of the usage writer; further texts of the turn are not kept."""
JSON_FACTOR = 8
"""How much larger JSON may be than the texts in it, by names and escapes."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What was asked and answered."""

    request: dict[str, Any]
    answers: list[dict[str, Any]]
    is_cut: bool


def texts_redacted(rows: Iterable[RequestLog], packed: Mapping[UUID, bytes]) -> dict[UUID, RequestText]:
    """Return rows of texts, redacted, by run id. Texts that cannot be redacted are left out.

    Call it before the transaction that stores them, as it takes time that others would wait.
    """
    kept = [row for row in rows if packed.get(row.run_id)]
    projects = Project.objects.in_bulk({row.project_id for row in kept}) if kept else {}
    rules: dict[int, Redaction] = {}
    until = time.monotonic() + BATCH_S
    texts: dict[UUID, RequestText] = {}
    for row in kept:
        project = projects.get(row.project_id)
        if project is None or not keeps_texts(project, is_chat=row.dialect == "playground"):
            continue
        if time.monotonic() > until:
            logger.warning("texts of up to %d requests are not kept: redaction is too slow", len(kept) - len(texts))
            break
        try:
            if row.project_id not in rules:
                rules[row.project_id] = Redaction(project.redaction_patterns)
            texts[row.run_id] = _row(row, packed[row.run_id], rules[row.project_id])
        except RedactionTooSlow:
            logger.warning("the text of request %s is not kept: redaction is too slow", row.run_id.hex)
        except Exception as error:
            # Whatever it is: usage and budgets must go on.
            logger.warning("the text of request %s is not kept: %s", row.run_id.hex, error)
    return texts


def keeps_texts(project: Project, *, is_chat: bool) -> bool:
    """Return True if the log keeps texts of a project's chats, or of its other requests.

    Texts of chats are kept only where administrators may read chats at all, which the playground tells people.
    """
    if project.stores_nothing:
        return False
    return project.keeps_chat_texts and settings.LIGHTCONE_CHAT_ADMIN_READ if is_chat else project.keeps_api_texts


def _row(row: RequestLog, packed: bytes, rules: Redaction) -> RequestText:
    plain = texts_unpacked(packed, most=JSON_FACTOR * settings.LIGHTCONE_LOG_TEXT_BYTES)
    text = json.dumps(rules.apply(plain), ensure_ascii=False).encode("utf-8", "replace")
    return RequestText(
        run_id=row.run_id,
        org_id=row.org_id,
        project_id=row.project_id,
        packed=zlib.compress(text),
        num_bytes=len(text),
        is_cut=bool(plain.get("is_cut")),
    )


def texts_read(log: RequestLog) -> Texts | None:
    """Return the kept texts of a request and record that they were read; None if none are kept."""
    row = RequestText.objects.filter(pk=log.pk).first()
    if row is None:
        return None
    plain = json.loads(zlib.decompress(bytes(row.packed)))
    audit_record(action="request.read", on=Subject(log.run_id.hex, log.model, log.org_id, log.project_id))
    return Texts(plain.get("request", {}), plain.get("answers", []), row.is_cut)


def texts_are_kept(log: RequestLog) -> bool:
    return RequestText.objects.filter(pk=log.pk).exists()
