"""Deliveries: queue notices for the channels that want them, try the due ones, and keep the log.

A row is the queue, so it survives a restart. A try is begun by moving `next_at` behind the longest try: whoever does
that first has it, and if that process dies the row is due again.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.conf import settings
from django.db.models import Exists, JSONField, OuterRef, Q, Window
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, RowNumber
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.access.destinations import AddressRefused
from chat.access.mail import MailFailed, mail_is_set_up, mail_send
from chat.alerts.models import Alert, AlertChannel, AlertDelivery, AlertRule, ChannelKind, DeliveryState, Event
from chat.alerts.secrets import SecretLost, secret_unseal
from chat.alerts.texts import alert_text, alert_title
from chat.alerts.webhooks import WEBHOOK_RULES, Message, WebhookFailed, headers_of, webhook_send

logger = logging.getLogger(__name__)

MOST_ATTEMPTS = 8
FIRST_PAUSE_S = 10
GROWTH = 4
MOST_PAUSE_S = 4 * 3600
TRY_S = 60
"""After which a try that has said nothing counts as lost. A webhook takes 10 s at most."""
GONE = 410
PRUNED_AT_ONCE = 1000
ERROR_CHARS = 300


@dataclass(frozen=True, slots=True)
class Result:
    """How a try ended. `is_final`: another one would end alike."""

    is_good: bool
    status: int | None = None
    answer: str = ""
    error: str = ""
    is_final: bool = False


def notices_queue(notices: Iterable[tuple[Alert, Event]], *, now: datetime) -> None:
    """Queue notices for the channels that want them. Call it in the transaction of their alerts."""
    notices = list(notices)
    if not notices:
        return
    orgs = {alert.org_id for alert, _event in notices}
    wanted = Q(org_id__in=[one for one in orgs if one is not None]) | (Q(org=None) if None in orgs else Q(pk__in=()))
    channels = list(AlertChannel.objects.filter(wanted, is_on=True).order_by("pk"))
    off = set(AlertRule.objects.filter(is_on=False).values_list("condition", flat=True))
    AlertDelivery.objects.bulk_create(
        _delivery(channel, alert, event, now, is_off=alert.condition in off)
        for alert, event in notices
        for channel in channels
        if channel.org_id == alert.org_id and (not channel.conditions or alert.condition in channel.conditions)
    )


def _delivery(channel: AlertChannel, alert: Alert, event: Event, now: datetime, *, is_off: bool) -> AlertDelivery:
    title, text = alert_title(alert, event), alert_text(alert)
    if event == Event.RESOLVED and is_off:
        text = _("Its rule was switched off, so it is no longer watched. It was: %(text)s") % {"text": text}
    elif event == Event.RESOLVED:
        text = _("It is over. It was: %(text)s") % {"text": text}
    data = {
        "alert_id": alert.pk,
        "condition": alert.condition,
        "subject": alert.subject,
        "name": alert.name,
        "organization_id": alert.org_id,
        "title": title,
        "text": text,
        "value": alert.value,
        "threshold": alert.threshold,
        "started_at": _instant(alert.since),
        "resolved_at": _instant(now) if event == Event.RESOLVED else None,
    }
    return AlertDelivery(
        channel=channel,
        channel_name=channel.name,
        org_id=channel.org_id,
        event=event,
        condition=alert.condition,
        title=title,
        text=text,
        body=body_of(event, data, now),
        next_at=now,
        created_at=now,
    )


def delivery_of_test(channel: AlertChannel, *, now: datetime) -> AlertDelivery:
    """Store a test notice that the caller tries itself, once."""
    title = _("Lightcone: a test")
    text = _("Notices of “%(name)s” arrive. Somebody pressed “Send a test”.") % {"name": channel.name}
    return AlertDelivery.objects.create(
        channel=channel,
        channel_name=channel.name,
        org_id=channel.org_id,
        event=Event.TEST,
        title=title,
        text=text,
        body=body_of(Event.TEST, {"title": title, "text": text}, now),
        attempts=1,
        next_at=now + timedelta(seconds=TRY_S),
        created_at=now,
    )


def body_of(event: Event, data: dict[str, Any], now: datetime) -> str:
    return json.dumps({"type": f"alert.{event.value}", "timestamp": _instant(now), "data": data}, ensure_ascii=False)


def _instant(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def deliveries_claim(*, now: datetime, most: int, busy: Collection[int] = ()) -> list[AlertDelivery]:
    """Begin tries of the oldest due delivery of each channel that is not `busy`. Return those that are the caller's.

    What is due for deleted channels fails. A resolved notice is not due while the firing one of its alert waits.
    """
    due = AlertDelivery.objects.filter(state=DeliveryState.WAITING, next_at__lte=now)
    due.filter(channel=None).update(state=DeliveryState.FAILED, error=_("The channel is deleted."), ended_at=now)
    before = AlertDelivery.objects.annotate(of=_alert_id()).filter(
        state=DeliveryState.WAITING,
        event=Event.FIRING,
        channel=OuterRef("channel"),
        condition=OuterRef("condition"),
        pk__lt=OuterRef("pk"),
        of=OuterRef("of"),
    )
    in_turn = due.annotate(of=_alert_id()).filter(~Q(event=Event.RESOLVED) | ~Exists(before))
    free = in_turn.filter(channel__isnull=False).exclude(channel__in=list(busy))
    place = Window(RowNumber(), partition_by="channel", order_by=("next_at", "pk"))
    first = free.annotate(place=place).filter(place=1).select_related("channel").order_by("next_at", "pk")
    claimed: list[AlertDelivery] = []
    for delivery in first[:most]:
        mine = AlertDelivery.objects.filter(pk=delivery.pk, state=DeliveryState.WAITING, next_at=delivery.next_at)
        delivery.attempts += 1
        if mine.update(next_at=now + timedelta(seconds=TRY_S), attempts=delivery.attempts):
            claimed.append(delivery)
    return claimed


def _alert_id() -> KeyTextTransform:
    """Return the expression for the id of the alert in the body of a delivery."""
    return KeyTextTransform("alert_id", KeyTransform("data", Cast("body", JSONField())))


async def delivery_try(delivery: AlertDelivery) -> Result:
    """Send a delivery once. It raises nothing: whatever goes wrong is the result."""
    channel = delivery.channel
    if channel is None:
        return Result(False, error=_("The channel is deleted."), is_final=True)
    if not channel.is_on and delivery.event != Event.TEST:
        return Result(False, error=_("The channel is off."), is_final=True)
    try:
        if channel.kind == ChannelKind.EMAIL:
            return await sync_to_async(_mail, thread_sensitive=False)(channel.address, delivery)
        return await _webhook(channel, delivery)
    except Exception as error:
        logger.exception("delivery %s failed", delivery.public_id)
        return Result(False, error=type(error).__name__)


def _mail(to: str, delivery: AlertDelivery) -> Result:
    if not mail_is_set_up():
        return Result(False, error=_("This server sends no mail: LIGHTCONE_SMTP_HOST is not set."))
    try:
        mail_send(to=to, subject=f"[Lightcone] {delivery.title}".replace("\n", " "), text=delivery.text)
    except MailFailed as error:
        return Result(False, error=str(error))
    return Result(True)


async def _webhook(channel: AlertChannel, delivery: AlertDelivery) -> Result:
    try:
        secrets = channel_secrets(channel, now=timezone.now())
        destination = WEBHOOK_RULES.read(channel.address)
        message = Message(f"msg_{delivery.public_id.hex}", int(time.time()), delivery.body)
        headers = headers_of(message, secrets, f"Lightcone/{settings.LIGHTCONE_VERSION}")
        answer = await webhook_send(destination, headers=headers, body=delivery.body)
    except SecretLost:
        return Result(False, error=_("The secret cannot be read: LIGHTCONE_SECRET_KEY has changed. Rotate the secret."))
    except AddressRefused as error:
        return Result(False, error=str(error), is_final=True)
    except WebhookFailed as error:
        return Result(False, error=str(error))
    wrong = "" if answer.is_good else _("The receiver answered with the status %(status)s.") % {"status": answer.status}
    return Result(answer.is_good, answer.status, answer.text, wrong, is_final=answer.status == GONE)


def channel_secrets(channel: AlertChannel, *, now: datetime) -> list[str]:
    """Return what a channel signs with: its secret, and for a day after a rotation the old one. Raises SecretLost."""
    sealed = [channel.sealed_secret]
    if channel.sealed_old_secret and channel.old_secret_until is not None and now < channel.old_secret_until:
        sealed.append(channel.sealed_old_secret)
    return [secret_unseal(one) for one in sealed]


def delivery_end(delivery: AlertDelivery, result: Result, *, now: datetime) -> None:
    """Note how a try ended, unless another try has begun since: then that one counts."""
    is_last = result.is_final or delivery.event == Event.TEST or delivery.attempts >= MOST_ATTEMPTS
    over = DeliveryState.DELIVERED if result.is_good else DeliveryState.FAILED if is_last else None
    delivery.status, delivery.answer = result.status, result.answer
    delivery.error = result.error.replace("\0", "")[:ERROR_CHARS]
    delivery.state = over or DeliveryState.WAITING
    delivery.ended_at = now if over else None
    delivery.next_at = now + pause_after(delivery.attempts)
    AlertDelivery.objects.filter(pk=delivery.pk, state=DeliveryState.WAITING, attempts=delivery.attempts).update(
        **{name: getattr(delivery, name) for name in ("status", "answer", "error", "state", "ended_at", "next_at")}
    )


def pause_after(attempts: int) -> timedelta:
    """Return how long to wait after so many tries: 10 s, 40 s, 3 min, … 4 h, and up to a tenth more."""
    pause_s = min(FIRST_PAUSE_S * GROWTH ** (attempts - 1), MOST_PAUSE_S)
    return timedelta(seconds=pause_s * random.uniform(1, 1.1))  # noqa: S311 it spreads retries


claim = database_sync_to_async(deliveries_claim)
end = database_sync_to_async(delivery_end)


def alerts_prune(*, before: datetime, at_once: int = PRUNED_AT_ONCE) -> int:
    """Delete alerts that ended, and deliveries that were made and are over, before an instant. Return their number."""
    num_deleted = 0
    for rows in (
        Alert.objects.filter(ended_at__lt=before),
        AlertDelivery.objects.filter(created_at__lt=before).exclude(state=DeliveryState.WAITING),
    ):
        while pks := list(rows.order_by().values_list("pk", flat=True)[:at_once]):
            num_deleted += rows.model._default_manager.filter(pk__in=pks).delete()[0]
    return num_deleted
