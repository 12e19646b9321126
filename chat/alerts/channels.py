"""Channels: make, change, delete, rotate the secret, send a test."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.access.destinations import AddressRefused
from chat.access.mail import mail_is_set_up
from chat.alerts.deliveries import delivery_end, delivery_of_test, delivery_try
from chat.alerts.models import BUDGET_PERCENTS, CONDITIONS, AlertChannel, AlertDelivery, ChannelKind, Event
from chat.alerts.secrets import secret_create, secret_seal
from chat.alerts.webhooks import WEBHOOK_RULES
from chat.audit.services import Subject, audit_record

OVERLAP = timedelta(days=1)
"""How long messages are signed with the secret before, too."""
TEST_PAUSE = timedelta(seconds=10)
"""The least time between two tests of a channel."""
CHANGED = ("name", "org", "kind", "address", "is_on", "conditions")
MOST_CHANNELS = 50
"""Of an organisation, and of the installation."""


def channel_save(*, channel: AlertChannel) -> str:
    """Store a new or changed channel. Return the secret of a new webhook, else "". Raises ValidationError."""
    channel_check(channel=channel)
    secret = ""
    with transaction.atomic():
        stored = AlertChannel.objects.select_for_update().filter(pk=channel.pk).first() if channel.pk else None
        if channel.kind == ChannelKind.WEBHOOK and not channel.sealed_secret:
            secret = secret_create()
            channel.sealed_secret = secret_seal(secret)
        # What a form has read may be older than a rotation, so the secrets of a stored channel stay as they are.
        channel.save(update_fields=None if stored is None else CHANGED)
        audit_record(
            action="channel.create" if stored is None else "channel.change",
            on=channel_subject(channel),
            before=None if stored is None else _audited(stored),
            after=_audited(channel),
        )
    return secret


def channel_check(*, channel: AlertChannel) -> None:
    """Raise ValidationError for a channel that cannot work."""
    if channel.kind == ChannelKind.EMAIL:
        _check_mail(channel.address)
    else:
        try:
            WEBHOOK_RULES.read(channel.address)
        except AddressRefused as error:
            raise ValidationError({"address": str(error)}) from error
    if unknown := [name for name in channel.conditions if name not in CONDITIONS]:
        raise ValidationError({"conditions": _("%(names)s: no such condition.") % {"names": ", ".join(unknown)}})
    if channel.org_id is not None and (never := [name for name in channel.conditions if name not in BUDGET_PERCENTS]):
        names = ", ".join(str(CONDITIONS[name]) for name in never)
        text = _("%(names)s: an organisation's channel gets only what concerns its budgets; choose of these.")
        raise ValidationError({"conditions": text % {"names": names}})
    same = AlertChannel.objects.filter(org=channel.org_id).exclude(pk=channel.pk)
    if channel.pk is None and same.count() >= MOST_CHANNELS:
        text = _("There are %(most)s channels already; delete one first.") % {"most": MOST_CHANNELS}
        raise ValidationError(text)
    if same.filter(name=channel.name).exists():
        raise ValidationError({"name": _("Another channel has this name; choose a new one.")})


def _check_mail(address: str) -> None:
    try:
        validate_email(address)
    except ValidationError:
        raise ValidationError({"address": _("Give an e-mail address such as ops@example.com.")}) from None
    if not mail_is_set_up():
        raise ValidationError({"kind": _("This server sends no mail: set LIGHTCONE_SMTP_HOST, or choose a webhook.")})


def channel_delete(*, channel: AlertChannel) -> None:
    """Delete a channel. What it was to deliver fails; what it has delivered stays in the log."""
    with transaction.atomic():
        audit_record(action="channel.delete", on=channel_subject(channel), before=_audited(channel))
        channel.delete()


def channel_rotate(*, channel: AlertChannel) -> str:
    """Give a webhook a new secret and return it. For a day messages are signed with both."""
    secret = secret_create()
    with transaction.atomic():
        channel = AlertChannel.objects.select_for_update().get(pk=channel.pk)
        channel.sealed_old_secret, channel.old_secret_until = channel.sealed_secret, timezone.now() + OVERLAP
        channel.sealed_secret = secret_seal(secret)
        channel.save(update_fields=("sealed_secret", "sealed_old_secret", "old_secret_until"))
        audit_record(action="channel.rotate", on=channel_subject(channel))
    return secret


def channel_test(*, channel: AlertChannel) -> AlertDelivery:
    """Send a test notice now, and return its delivery with the result. It takes ten seconds at most for a webhook.

    Raises ValidationError where the last test was less than TEST_PAUSE ago.
    """
    now = timezone.now()
    with transaction.atomic():
        AlertChannel.objects.select_for_update().get(pk=channel.pk)
        if AlertDelivery.objects.filter(channel=channel, event=Event.TEST, created_at__gt=now - TEST_PAUSE).exists():
            text = _("A channel takes one test in %(seconds)d s; wait a moment, then send it again.")
            raise ValidationError(text % {"seconds": TEST_PAUSE.total_seconds()})
        audit_record(action="channel.test", on=channel_subject(channel))
        delivery = delivery_of_test(channel, now=now)
    result = async_to_sync(delivery_try)(delivery)
    delivery_end(delivery, result, now=timezone.now())
    return delivery


def channel_subject(channel: AlertChannel) -> Subject:
    return Subject(channel.pk, channel.name, channel.org_id or 0)


def channel_place(channel: AlertChannel) -> str:
    """Return where a channel leads, without what may be a secret in it."""
    if channel.kind == ChannelKind.EMAIL:
        return channel.address
    try:
        return f"{WEBHOOK_RULES.read(channel.address).origin}/…"
    except AddressRefused:
        return "…"


def _audited(channel: AlertChannel) -> dict[str, object]:
    """Return what of a channel is audited. The digest tells a change of the part of a URL that is not shown."""
    names = ("name", "org_id", "kind", "is_on", "conditions")
    digest = hashlib.sha256(channel.address.encode()).hexdigest()
    return {name: getattr(channel, name) for name in names} | {
        "address": channel_place(channel),
        "address_digest": digest,
    }
