"""The rights of keys, and validators of JSON columns, which raise ValidationError."""

from __future__ import annotations

import ipaddress
import re

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?", re.ASCII)
MAX_ENTRIES = 100
MAX_ENTRY_CHARS = 200


class Right(models.TextChoices):
    """A use of a key. The last five bring code, templates, vectors or memory into the model's worker, or have this
    server connect to others."""

    INFERENCE = "inference", gettext_lazy("Inference")
    USAGE_READ = "usage_read", gettext_lazy("Read usage")
    KEYS_MANAGE = "keys_manage", gettext_lazy("Manage keys")
    MODELS_MANAGE = "models_manage", gettext_lazy("Manage models")
    CHAT_TEMPLATE = "chat_template", gettext_lazy("Send chat templates")
    LOGITS_PROCESSORS = "logits_processors", gettext_lazy("Use logits processors")
    MM_KWARGS = "mm_kwargs", gettext_lazy("Set media options")
    MEDIA_FETCH = "media_fetch", gettext_lazy("Have media fetched")
    EMBEDS = "embeds", gettext_lazy("Send vectors as inputs")


def check_texts(value: object) -> list[str]:
    """Return `value`, a list of at most 100 non-empty texts of at most 200 characters."""
    if not isinstance(value, list) or len(value) > MAX_ENTRIES:
        raise ValidationError(_("Give a list of at most %(most)s entries.") % {"most": MAX_ENTRIES})
    for text in value:
        if not isinstance(text, str) or not 0 < len(text) <= MAX_ENTRY_CHARS:
            refusal = _("Each entry must be a text of 1 to %(most)s characters.")
            raise ValidationError(refusal % {"most": MAX_ENTRY_CHARS})
    return value


def check_rights(value: object) -> None:
    for text in check_texts(value):
        if text not in Right.values:
            refusal = _("%(right)r is no right; the rights are %(rights)s.")
            raise ValidationError(refusal % {"right": text, "rights": ", ".join(Right.values)})


def check_networks(value: object) -> None:
    for text in check_texts(value):
        try:
            ipaddress.ip_network(text)
        except ValueError:
            refusal = _("%(text)r is no network; write an address or a range such as 10.0.0.0/8 or 2001:db8::/32.")
            raise ValidationError(refusal % {"text": text}) from None


def check_origins(value: object) -> None:
    for text in check_texts(value):
        if ORIGIN.fullmatch(text) is None:
            refusal = _("%(text)r is no browser origin; write it as https://app.example.org, without a path.")
            raise ValidationError(refusal % {"text": text})


def check_object(value: object) -> None:
    if not isinstance(value, dict):
        raise ValidationError(_('Write a JSON object, for example {"temperature": 0.7}.'))
