"""The rights of keys, and validators of JSON columns, which raise ValidationError."""

from __future__ import annotations

import ipaddress
import re

from django.core.exceptions import ValidationError
from django.db import models

ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?", re.ASCII)
MAX_ENTRIES = 100
MAX_ENTRY_CHARS = 200


class Right(models.TextChoices):
    """A use of a key. The last three bring code, templates or memory into the model's worker."""

    INFERENCE = "inference", "Inference"
    USAGE_READ = "usage_read", "Read usage"
    KEYS_MANAGE = "keys_manage", "Manage keys"
    MODELS_MANAGE = "models_manage", "Manage models"
    CHAT_TEMPLATE = "chat_template", "Send chat templates"
    LOGITS_PROCESSORS = "logits_processors", "Use logits processors"
    MM_KWARGS = "mm_kwargs", "Set media options"


def check_texts(value: object) -> list[str]:
    """Return `value`, a list of at most 100 non-empty texts of at most 200 characters."""
    if not isinstance(value, list) or len(value) > MAX_ENTRIES:
        raise ValidationError(f"Give a list of at most {MAX_ENTRIES} entries.")
    for text in value:
        if not isinstance(text, str) or not 0 < len(text) <= MAX_ENTRY_CHARS:
            raise ValidationError(f"Each entry must be a text of 1 to {MAX_ENTRY_CHARS} characters.")
    return value


def check_rights(value: object) -> None:
    for text in check_texts(value):
        if text not in Right.values:
            raise ValidationError(f"{text!r} is no right; the rights are {', '.join(Right.values)}.")


def check_networks(value: object) -> None:
    for text in check_texts(value):
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise ValidationError(
                f"{text!r} is no network; write an address or a range such as 10.0.0.0/8 or 2001:db8::/32."
            ) from None


def check_origins(value: object) -> None:
    for text in check_texts(value):
        if ORIGIN.fullmatch(text) is None:
            raise ValidationError(
                f"{text!r} is no browser origin; write it as https://app.example.org, without a path."
            )


def check_object(value: object) -> None:
    if not isinstance(value, dict):
        raise ValidationError('Write a JSON object, for example {"temperature": 0.7}.')
