"""API keys: create, change, rotate, disable, delete, authenticate.

A key reads `lc_<keyid>_<secret>`. The key id is its public name; the secret has 192 random bits. The database holds a
keyed digest of the whole text (`digests.py`); a fast one suffices because the secret is random.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.access.active_projects import active_lock, check_active
from chat.access.addresses import Network, is_within
from chat.access.admin_keys import admin_keys_settle
from chat.access.checks import Right
from chat.access.configuration import TTLCache, configuration_changed, configuration_touch
from chat.access.digests import digest, pepper_version, peppers, public_id_random
from chat.access.key_scope import may_own
from chat.access.limit_columns import LIMIT_COLUMNS, rates_of, scope_of
from chat.access.models import ApiKey, ApiKeySecret, Membership, Project
from chat.access.policy import may
from chat.access.roles import Act, Reach
from chat.access.subjects import key_subject
from chat.audit.services import audit_record
from chat.audit.values import row_values
from chat.errors import ApiError
from chat.relay.state.meters import Measure, Period, Rate, Scope, ScopeKind

KEY_PREFIX = "lc_"
KEY_FORMAT = re.compile(r"lc_(?P<public_id>[a-z0-9]{8,16})_(?P<secret>[0-9a-f]{48})", re.ASCII)
KEY_FORMAT_HELP = "an API key reads lc_<8 to 16 lowercase letters or digits>_<48 digits 0-9 a-f>"
CACHE_TTL_S = 5.0
CACHE_KEYS = 10_000
DEFAULT_OVERLAP = timedelta(hours=24)
AUDITED = (
    *(
        "name",
        "project_id",
        "owner_id",
        "service_account_id",
        "rights",
        "model_names",
        "networks",
        "origins",
        "expires_at",
    ),
    *(*LIMIT_COLUMNS, "min_priority"),
)
SESSION_SCOPE = "session"


class KeyInvalid(Exception):
    """A 401. Unknown, disabled, deleted and expired keys get the same text."""

    def __init__(self) -> None:
        super().__init__("Incorrect API key provided. Create or look up keys in the Lightcone console under API keys.")


class KeyForbidden(Exception):
    """A 403 for a valid key that may not be used from this address or origin."""


class KeyRefused(ValueError):
    """The refusal of a key text that the operator chose. The message does not repeat the text."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of a key. None: unlimited."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_concurrency: int | None = None
    further_rates: tuple[Rate, ...] = ()
    max_queue_percent: int | None = None
    max_context: int | None = None

    @property
    def rates(self) -> tuple[Rate, ...]:
        figures = ((Measure.REQUESTS, self.requests_per_minute), (Measure.TOKENS, self.tokens_per_minute))
        return (*(Rate(measure, Period.MINUTE, limit) for measure, limit in figures if limit), *self.further_rates)

    @property
    def live_runs(self) -> int:
        most: int = settings.LIGHTCONE_MAX_LIVE_PER_KEY
        return min(self.max_concurrency or most, most)

    @property
    def live_share(self) -> int:
        """Return the most runs of background work: half, which leaves room for the key's other requests."""
        return max(1, self.live_runs // 2)


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller: what the rest of a request needs to know of its key."""

    key_id: int
    public_id: str
    org_id: int
    project_id: int
    tenant: str
    """Separates prefix caches and fair shares."""
    rights: frozenset[str] = frozenset({str(Right.INFERENCE)})
    models: frozenset[str] | None = None
    """Names of models that may be used. None: all."""
    networks: tuple[Network, ...] = ()
    origins: frozenset[str] = frozenset()
    limits: KeyLimits = field(default_factory=KeyLimits)
    min_priority: int = 0
    """The smallest priority, which is the most urgent one, that a request may ask for."""
    name: str = ""
    """What people call the key, for the audit log."""
    account_id: int | None = None
    """Who chats, or whose personal key it is; below zero a service account. None: a key of the project, or nobody."""
    keeps_texts: bool = False
    """Whether the project has the request log keep texts of such requests."""
    stores_nothing: bool = False
    """The project has the request log keep nothing of callers."""
    wider_scopes: tuple[Scope, ...] = ()
    """What else its requests count to, with limits: account, project, organisation."""

    def scopes(self) -> tuple[Scope, ...]:
        """Return what its requests count to, the key first. Without a key they count to its session."""
        name = self.public_id or f"{SESSION_SCOPE}:{self.tenant}"
        title = "This API key" if self.public_id else "This account"
        limits = self.limits
        queue_percent, max_context = limits.max_queue_percent or 0, limits.max_context or 0
        own = Scope(ScopeKind.KEY, name, title, limits.rates, limits.live_runs, queue_percent, max_context)
        return (own, *self.wider_scopes)

    def has_right(self, right: str) -> bool:
        return right in self.rights

    def require_right(self, right: str) -> None:
        """Raise ApiError 403 unless the key has the right."""
        if right not in self.rights:
            raise ApiError(
                "permission_denied",
                f"This API key does not have the right {Right(right).label!r}; give it in the console under API keys.",
            )

    def can_use_model(self, name: str) -> bool:
        return self.models is None or name in self.models


def key_create(*, project: Project, name: str, raw: str | None = None, **policy: Any) -> tuple[ApiKey, str]:
    """Create a key and return it with its text, which is not stored. `raw` sets the text, for automation.

    `policy`: fields of ApiKey. Raises KeyRefused for an unusable `raw`, ValidationError for a bad policy.
    """
    if raw is None:
        raw = _random_text(public_id_random())
    check_active(project)
    key = ApiKey(public_id=key_public_id(raw=raw), project=project, name=name, **policy)
    key.full_clean(exclude=["public_id"])
    with transaction.atomic():
        active_lock(project)
        if ApiKey.objects.filter(public_id=key.public_id).exists():
            raise KeyRefused(f"the key id {key.public_id} is taken (also by a deleted key): choose another")
        key.save()
        _secret_add(key=key, raw=raw)
        audit_record(action="key.create", on=key_subject(key), after=row_values(key, AUDITED))
        configuration_touch()
    return key, raw


def key_update(*, key: ApiKey, actor: User | None = None) -> None:
    """Store changed fields. Raises ValidationError, and PermissionDenied for limits that `actor` may not change.

    Members choose limits of keys that they make, and do not lift those that somebody has set since. The key of a
    service account stays in the project of the account.
    """
    key.full_clean()
    if key.service_account is not None and key.project_id != key.service_account.project_id:
        text = _("This is a key of the service account %(account)s, and stays in its project.")
        raise ValidationError({"project": text % {"account": key.service_account}})
    if key.disabled_at is None:
        key_owner_check(key=key)
    with transaction.atomic():
        before = ApiKey.objects.values(*AUDITED).get(pk=key.pk)
        is_limited_anew = any(before[name] != getattr(key, name) for name in LIMIT_COLUMNS)
        if is_limited_anew and actor is not None:
            org_id = Project.objects.values_list("org_id", flat=True).get(pk=before["project_id"])
            if not may(actor, Act.LIMITS_MANAGE, org_id=org_id, least=Reach.ORG):
                raise PermissionDenied(_("Your role does not let you change the limits of a key."))
        key.save()
        audit_record(action="key.change", on=key_subject(key), before=before, after=row_values(key, AUDITED))
        configuration_touch()


def key_rotate(*, key: ApiKey, overlap: timedelta = DEFAULT_OVERLAP) -> str:
    """Give the key a new secret and return the new text. Older secrets stay valid for `overlap` at most."""
    if key.deleted_at is not None:
        raise ValidationError(_("A deleted key cannot be rotated."))
    raw = _random_text(key.public_id)
    until = timezone.now() + overlap
    with transaction.atomic():
        key.secrets.filter(valid_until=None).update(valid_until=until)
        key.secrets.filter(valid_until__gt=until).update(valid_until=until)
        _secret_add(key=key, raw=raw)
        audit_record(action="key.rotate", on=key_subject(key), after={"old_valid_until": until})
        configuration_touch()
    return raw


def key_disable(*, key: ApiKey) -> None:
    _mark(key, "key.disable", disabled_at=key.disabled_at or timezone.now())


def key_enable(*, key: ApiKey) -> None:
    """Accept a disabled key again. Raises ValidationError if its owner may not have it any more."""
    key_owner_check(key=key)
    _mark(key, "key.enable", disabled_at=None)


def key_delete(*, key: ApiKey) -> None:
    """Delete the key's secrets and refuse it from now on. Its name and history stay."""
    with transaction.atomic():
        _mark(key, "key.delete", deleted_at=key.deleted_at or timezone.now())
        key.secrets.all().delete()


def keys_settle(*, owner: User) -> None:
    """Disable the keys of a person that the person's roles and projects no longer give, and end such admin keys."""
    person = type(owner).objects.get(pk=owner.pk)  # without what was read of the roles before
    for key in person.keys.filter(deleted_at=None, disabled_at=None).select_related("project"):
        if not may_own(person, key):
            key_disable(key=key)
    admin_keys_settle(owner=person)


def key_owner_check(*, key: ApiKey) -> None:
    """Raise ValidationError if the key is a person's who could not make it."""
    if key.owner_id is not None and not may_own(User.objects.get(pk=key.owner_id), key):
        refusal = _("%(person)s may not have a key with these rights and this priority in %(project)s.")
        raise ValidationError(refusal % {"person": key.owner, "project": key.project})


def key_public_id(*, raw: str) -> str:
    """Return the key id of a key text. Raises KeyRefused if the text is malformed."""
    match = KEY_FORMAT.fullmatch(raw)
    if match is None:
        raise KeyRefused(KEY_FORMAT_HELP)
    return match["public_id"]


def key_has_secret(*, key: ApiKey, raw: str) -> bool:
    """Return True if `raw` is a text of this key, current or from before a rotation."""
    digests = [digest(raw, pepper) for pepper in peppers()]
    return any(secret.digest in digests for secret in key.secrets.all())


async def key_authenticate(*, raw: str, address: str = "", origin: str = "") -> Caller:
    """Return the caller of a key text, using a thread only if it is not cached. `origin`: the Origin header, or empty.

    Raises KeyInvalid, or KeyForbidden if the key is valid but not for this address or origin.
    """
    caller = _cached(raw) or await database_sync_to_async(_load)(raw)
    if caller.networks and not is_within(address, caller.networks):
        raise KeyForbidden("This API key may not be used from this network address.")
    if caller.origins and origin and origin not in caller.origins:
        raise KeyForbidden("This API key may not be used from this browser origin.")
    return caller


def key_caller(*, public_id: str) -> Caller:
    """Return the caller of a key, for work without the key's text. Raises KeyInvalid."""
    key = ApiKey.objects.select_related("project__org").filter(public_id=public_id).first()
    if key is None or key.disabled_at or key.deleted_at or key.project.archived_at:
        raise KeyInvalid
    if key.expires_at and key.expires_at <= timezone.now():
        raise KeyInvalid
    return _caller(key)


_cache: TTLCache[Caller] = TTLCache(max_entries=CACHE_KEYS, ttl_s=CACHE_TTL_S)


def keys_cache_clear(**_: object) -> None:
    """Empty the cache of keys, as a receiver of `configuration_changed`."""
    _cache.clear()


configuration_changed.connect(keys_cache_clear, dispatch_uid="chat.access.keys")


def _cached(raw: str) -> Caller | None:
    """Return the cached caller of a key text. Raises KeyInvalid for a malformed text, before hashing it."""
    if KEY_FORMAT.fullmatch(raw) is None:
        raise KeyInvalid
    return _cache.get(digest(raw, peppers()[0]))


def _load(raw: str) -> Caller:
    generation = _cache.generation
    digests = [digest(raw, pepper) for pepper in peppers()]
    secret = ApiKeySecret.objects.select_related("key__project__org").filter(digest__in=digests).first()
    now = timezone.now()
    if secret is None or not any(hmac.compare_digest(secret.digest, one) for one in digests):
        raise KeyInvalid
    key = secret.key
    ends = [end for end in (secret.valid_until, key.expires_at) if end is not None]
    if key.disabled_at or key.deleted_at or key.project.archived_at or any(end <= now for end in ends):
        raise KeyInvalid
    caller = _caller(key)
    ttl_s = min(((end - now).total_seconds() for end in ends), default=CACHE_TTL_S)
    _cache.put(digests[0], caller, generation=generation, max_ttl_s=ttl_s)
    return caller


def _caller(key: ApiKey) -> Caller:
    own = {(Measure.REQUESTS, Period.MINUTE), (Measure.TOKENS, Period.MINUTE)}
    further = tuple(rate for rate in rates_of(key) if (rate.measure, rate.period) not in own)
    return Caller(
        key_id=key.pk,
        public_id=key.public_id,
        org_id=key.project.org_id,
        project_id=key.project_id,
        tenant=str(key.project_id),
        rights=frozenset(key.rights),
        models=models_allowed(key.model_names, key.project),
        networks=tuple(ipaddress.ip_network(network) for network in key.networks),
        origins=frozenset(key.origins),
        limits=KeyLimits(
            key.requests_per_minute,
            key.tokens_per_minute,
            key.max_concurrency,
            further,
            key.max_queue_percent,
            key.max_context,
        ),
        min_priority=key.min_priority,
        name=key.name,
        account_id=key.owner_id or _usage_id(key),
        keeps_texts=key.project.keeps_api_texts,
        stores_nothing=key.project.stores_nothing,
        wider_scopes=wider_scopes(project=key.project, account_id=key.owner_id),
    )


def _usage_id(key: ApiKey) -> int | None:
    """Return the number by which usage names the service account of a key."""
    return None if key.service_account_id is None else -key.service_account_id


def models_allowed(names: list[str] | None, project: Project) -> frozenset[str] | None:
    """Return the models that both a key (None: all) and its project (none: all) allow; None: every model."""
    if not project.model_names:
        return None if names is None else frozenset(names)
    allowed = frozenset(project.model_names)
    return allowed if names is None else allowed & frozenset(names)


def wider_scopes(*, project: Project, account_id: int | None) -> tuple[Scope, ...]:
    """Return what requests of a project count to beside their key: the account, the project, the organisation."""
    org = project.org
    scopes = [
        scope_of(project, ScopeKind.PROJECT, f"project:{project.pk}", f"The project '{project.name}'"),
        scope_of(org, ScopeKind.ORG, f"org:{org.pk}", f"The organisation '{org.name}'"),
    ]
    member = Membership.objects.filter(user=account_id, org=org).first() if account_id else None
    if member is not None:
        name = f"account:{org.pk}:{account_id}"
        scopes.insert(0, scope_of(member, ScopeKind.ACCOUNT, name, f"Your account in '{org.name}'"))
    return tuple(scope for scope in scopes if scope.is_limited)


def _mark(key: ApiKey, action: str, **fields: datetime | None) -> None:
    with transaction.atomic():
        before = ApiKey.objects.values(*fields).get(pk=key.pk)
        for name, value in fields.items():
            setattr(key, name, value)
        key.save(update_fields=list(fields))
        audit_record(action=action, on=key_subject(key), before=before, after=fields)
        configuration_touch()


def _secret_add(*, key: ApiKey, raw: str) -> None:
    pepper = peppers()[0]
    ApiKeySecret.objects.create(
        key=key, digest=digest(raw, pepper), pepper_version=pepper_version(pepper), last4=raw[-4:]
    )


def _random_text(public_id: str) -> str:
    return f"{KEY_PREFIX}{public_id}_{secrets.token_hex(24)}"
