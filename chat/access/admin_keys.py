"""Admin keys: make, revoke, authenticate.

An admin key reads `lca_<keyid>_<secret>`. It opens /v1/organization alone, for one organisation, and acts as the person
who made it: what that person may not do now, it may not. It ends with the role that let the person make it.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.access.addresses import is_within
from chat.access.digests import digest, pepper_version, peppers, public_id_random
from chat.access.models import AdminKey, Org
from chat.access.policy import may
from chat.access.roles import Act, Reach
from chat.access.subjects import admin_key_subject
from chat.audit.services import audit_record
from chat.audit.values import row_values

ADMIN_KEY_PREFIX = "lca_"
ADMIN_KEY_FORMAT = re.compile(r"lca_(?P<public_id>[a-z0-9]{12})_[0-9a-f]{48}", re.ASCII)
AUDITED = ("name", "org_id", "owner_id", "networks", "expires_at")
USE_NOTED_EACH = timedelta(minutes=1)


class AdminKeyInvalid(Exception):
    """A 401. Unknown, revoked and expired keys, and those whose maker has lost the role, get the same text."""

    def __init__(self) -> None:
        super().__init__(
            "Incorrect admin key provided: /v1/organization takes admin keys (lca_…), no API keys. Owners and admins "
            "make them in the console under Admin keys."
        )


class AdminKeyForbidden(Exception):
    """A 403 for a valid key that may not be used from this address."""


@dataclass(frozen=True, slots=True)
class AdminCaller:
    """Who calls /v1/organization: a key, and the person as whom it acts."""

    key: AdminKey
    person: User
    org: Org


def admin_key_create(
    *, actor: User, org: Org, name: str, networks: Sequence[str] = (), expires_at: datetime | None = None
) -> tuple[AdminKey, str]:
    """Make a key that acts as `actor`, and return it with its text, which is not stored.

    Raises PermissionDenied, or ValidationError for a bad name, network or expiry.
    """
    if not _may_have(actor, org.pk):
        raise PermissionDenied(_("Your role in %(org)s does not let you make admin keys.") % {"org": org})
    if expires_at is not None and expires_at <= timezone.now():
        raise ValidationError({"expires_at": _("The expiry must be in the future.")})
    public_id = public_id_random()
    raw = f"{ADMIN_KEY_PREFIX}{public_id}_{secrets.token_hex(24)}"
    pepper = peppers()[0]
    key = AdminKey(
        public_id=public_id,
        name=name,
        org=org,
        owner=actor,
        networks=list(networks),
        expires_at=expires_at,
        digest=digest(raw, pepper),
        pepper_version=pepper_version(pepper),
        last4=raw[-4:],
    )
    key.full_clean()
    with transaction.atomic():
        key.save()
        audit_record(action="admin_key.create", on=admin_key_subject(key), after=row_values(key, AUDITED))
    return key, raw


def admin_key_revoke(*, key: AdminKey) -> None:
    """Refuse a key from now on, for good. Its name stays."""
    with transaction.atomic():
        if AdminKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()):
            audit_record(action="admin_key.revoke", on=admin_key_subject(key), before=row_values(key, AUDITED))


def admin_keys_revoke(*, owner: User) -> None:
    """Revoke every key of a person."""
    for key in owner.admin_keys.filter(revoked_at=None):
        admin_key_revoke(key=key)


def admin_keys_settle(*, owner: User) -> None:
    """Revoke the keys of a person that the person could not make any more."""
    for key in owner.admin_keys.filter(revoked_at=None):
        if not _may_have(owner, key.org_id):
            admin_key_revoke(key=key)


def admin_keys_listed() -> QuerySet[AdminKey]:
    """Return the keys that are not revoked, with their organisation and maker."""
    return AdminKey.objects.filter(revoked_at=None).select_related("org", "owner")


def admin_key_authenticate(*, raw: str, address: str) -> AdminCaller:
    """Return the caller of a key text. It is read from the database each time, so that every change holds at once.

    Raises AdminKeyInvalid, or AdminKeyForbidden for a valid key at another address.
    """
    if ADMIN_KEY_FORMAT.fullmatch(raw) is None:
        raise AdminKeyInvalid
    digests = [digest(raw, pepper) for pepper in peppers()]
    key = admin_keys_listed().filter(digest__in=digests).first()
    now = timezone.now()
    if key is None or not any(hmac.compare_digest(key.digest, one) for one in digests):
        raise AdminKeyInvalid
    if (key.expires_at and key.expires_at <= now) or key.owner is None or not _may_have(key.owner, key.org_id):
        raise AdminKeyInvalid
    if key.networks and not is_within(address, [ipaddress.ip_network(network) for network in key.networks]):
        raise AdminKeyForbidden("This admin key may not be used from this network address.")
    unnoted = Q(last_used_at=None) | Q(last_used_at__lt=now - USE_NOTED_EACH)
    AdminKey.objects.filter(unnoted, pk=key.pk).update(last_used_at=now)
    return AdminCaller(key, key.owner, key.org)


def _may_have(person: User, org_id: int) -> bool:
    return may(person, Act.ADMIN_KEYS_MANAGE, org_id=org_id, least=Reach.ORG)
