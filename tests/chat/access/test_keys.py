"""Creation, authentication, rotation and end of keys."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import ValidationError
from django.utils import timezone
from hypothesis import example, given
from hypothesis import strategies as st

from chat.access import keys
from chat.access.keys import (
    KeyForbidden,
    KeyInvalid,
    KeyRefused,
    key_create,
    key_delete,
    key_disable,
    key_enable,
    key_rotate,
    key_update,
    keys_cache_clear,
)
from chat.models import ApiKey, ApiKeySecret, Project
from tests.chat.records import key_authenticate

GIVEN_KEY = "lc_accept0001_" + "0123456789abcdef" * 3


def passes(raw: str, **place: str) -> bool:
    keys_cache_clear()
    try:
        key_authenticate(raw=raw, **place)
    except KeyInvalid:
        return False
    return True


def test_a_new_key_has_the_published_form_and_192_random_bits(project: Project) -> None:
    key, raw = key_create(project=project, name="first")
    assert keys.KEY_FORMAT.fullmatch(raw)
    assert raw.startswith(f"lc_{key.public_id}_")
    assert len(raw.rsplit("_", 1)[1]) * 4 == 192
    assert key_create(project=project, name="first")[1] != raw


def test_a_caller_has_the_policy_of_its_key(project: Project) -> None:
    policy = {"model_names": ["small"], "requests_per_minute": 60, "max_concurrency": 3, "min_priority": 5}
    key, raw = key_create(project=project, name="scoped", **policy)
    caller = key_authenticate(raw=raw)
    assert (caller.key_id, caller.public_id, caller.project_id, caller.org_id) == (
        key.pk,
        key.public_id,
        project.pk,
        project.org_id,
    )
    assert caller.tenant == str(project.pk)
    assert caller.has_right("inference")
    assert not caller.has_right("keys_manage")
    assert caller.can_use_model("small")
    assert not caller.can_use_model("large")
    assert (caller.limits.requests_per_minute, caller.limits.tokens_per_minute, caller.limits.max_concurrency) == (
        60,
        None,
        3,
    )
    assert caller.min_priority == 5


def test_a_key_with_an_empty_list_of_models_may_use_none(project: Project) -> None:
    _, raw = key_create(project=project, name="none", model_names=[])
    assert not key_authenticate(raw=raw).can_use_model("small")


def test_the_operator_may_set_only_a_well_formed_text(project: Project) -> None:
    _, raw = key_create(project=project, name="given", raw=GIVEN_KEY)
    assert raw == GIVEN_KEY
    assert passes(GIVEN_KEY)
    for wrong in (
        "",
        "secret",
        "lc_short_" + "0" * 48,
        "lc_accept0002_" + "0" * 47,
        "lc_accept0002_" + "G" * 48,
        GIVEN_KEY + "\n",
    ):
        with pytest.raises(KeyRefused, match="48 digits") as refusal:
            key_create(project=project, name="wrong", raw=wrong)
        assert not wrong or wrong not in str(refusal.value)


def test_a_key_id_is_never_given_twice(project: Project) -> None:
    key, _ = key_create(project=project, name="given", raw=GIVEN_KEY)
    key_delete(key=key)
    with pytest.raises(KeyRefused, match="is taken"):
        key_create(project=project, name="again", raw="lc_accept0001_" + "f" * 48)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "raw",
    [
        "",
        "x' OR pg_sleep(8)--",
        "lc_accept0001_" + "0" * 48,
        "lc_accept0001_" + "０" * 48,
        "lc_accept0001_\0" + "0" * 47,
        "\ud800" * 20,
        "lc_accept0001_" + "0" * 1_000_000,
    ],
)
def test_hostile_texts_are_refused_like_unknown_keys(raw: str) -> None:
    with pytest.raises(KeyInvalid) as refusal:
        key_authenticate(raw=raw)
    assert str(refusal.value) == str(KeyInvalid())


def test_malformed_keys_are_refused_without_hashing_or_query(
    django_assert_num_queries: Any, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("hashed")

    monkeypatch.setattr(keys, "digest", refuse)
    with django_assert_num_queries(0), pytest.raises(KeyInvalid):
        key_authenticate(raw="lc_accept0001_" + "0" * 1_000_000)


@given(raw=st.text(max_size=300))
@example(raw="lc_accept0001_" + "0" * 48 + "\n")
def test_only_well_formed_keys_are_looked_up(raw: str) -> None:
    """The test has no database: a query would fail it."""
    if keys.KEY_FORMAT.fullmatch(raw) is None:
        with pytest.raises(KeyInvalid):
            key_authenticate(raw=raw)


def test_unknown_disabled_deleted_and_expired_keys_get_the_same_error(project: Project) -> None:
    disabled, disabled_raw = key_create(project=project, name="disabled")
    key_disable(key=disabled)
    deleted, deleted_raw = key_create(project=project, name="deleted")
    key_delete(key=deleted)
    expired, expired_raw = key_create(project=project, name="expired")
    ApiKey.objects.filter(pk=expired.pk).update(expires_at=timezone.now())
    keys_cache_clear()
    answers = set()
    for raw in (GIVEN_KEY, disabled_raw, deleted_raw, expired_raw):
        with pytest.raises(KeyInvalid) as refusal:
            key_authenticate(raw=raw)
        answers.add(str(refusal.value))
    assert len(answers) == 1


def test_disabling_is_reversible_and_deleting_keeps_the_name(project: Project) -> None:
    key, raw = key_create(project=project, name="worker")
    key_disable(key=key)
    assert not passes(raw)
    key_enable(key=key)
    assert passes(raw)
    key_delete(key=key)
    assert not passes(raw)
    kept = ApiKey.objects.get(pk=key.pk)
    assert kept.name == "worker"
    assert kept.deleted_at is not None
    assert not kept.secrets.exists()


def test_a_key_ends_exactly_at_its_expiry(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    expires_at = timezone.now() + dt.timedelta(days=30)
    _, raw = key_create(project=project, name="month", expires_at=expires_at)
    monkeypatch.setattr(keys.timezone, "now", lambda: expires_at - dt.timedelta(microseconds=1))
    assert passes(raw)
    monkeypatch.setattr(keys.timezone, "now", lambda: expires_at)
    assert not passes(raw)


def test_both_secrets_work_during_the_overlap_of_a_rotation_and_are_one_identity(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, old = key_create(project=project, name="rotated", tokens_per_minute=9)
    new = key_rotate(key=key, overlap=dt.timedelta(hours=1))
    assert new != old
    keys_cache_clear()
    assert key_authenticate(raw=old) == key_authenticate(raw=new)
    later = timezone.now() + dt.timedelta(hours=1, seconds=1)
    monkeypatch.setattr(keys.timezone, "now", lambda: later)
    assert not passes(old)
    assert passes(new)


def test_a_second_rotation_never_extends_an_old_secret(project: Project) -> None:
    key, _ = key_create(project=project, name="rotated")
    key_rotate(key=key, overlap=dt.timedelta(hours=1))
    first_end = key.secrets.get(valid_until__isnull=False).valid_until
    key_rotate(key=key, overlap=dt.timedelta(hours=48))
    assert key.secrets.filter(valid_until=first_end).exists()
    assert key.secrets.filter(valid_until=None).count() == 1


def test_a_rotation_without_overlap_ends_the_old_secret_at_once(project: Project) -> None:
    key, old = key_create(project=project, name="leaked")
    new = key_rotate(key=key, overlap=dt.timedelta(0))
    assert not passes(old)
    assert passes(new)


def test_the_database_holds_a_keyed_digest_and_four_characters_only(project: Project, settings: Any) -> None:
    key, raw = key_create(project=project, name="hidden")
    rotated = key_rotate(key=key)
    key_authenticate(raw=raw)
    everything = repr([list(model.objects.values()) for model in apps.get_models()])
    for text in (raw, rotated):
        secret = text.rsplit("_", 1)[1]
        assert secret not in everything
        assert secret[:12] not in everything
        assert hashlib.sha256(text.encode()).hexdigest() not in everything
    row = ApiKeySecret.objects.get(last4=raw[-4:], valid_until__isnull=False)
    assert row.digest == hmac.new(settings.LIGHTCONE_KEY_PEPPER.encode(), raw.encode(), hashlib.sha256).hexdigest()


def test_peppers_can_rotate(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_KEY_PEPPER = "old-pepper"
    _, raw = key_create(project=project, name="before")
    settings.LIGHTCONE_KEY_PEPPER = "new-pepper,old-pepper"
    assert passes(raw)
    _, fresh = key_create(project=project, name="after")
    settings.LIGHTCONE_KEY_PEPPER = "new-pepper"
    assert passes(fresh)
    assert not passes(raw)
    assert ApiKeySecret.objects.values("pepper_version").distinct().count() == 2


def test_a_key_is_read_from_the_database_once(project: Project, django_assert_num_queries: Any) -> None:
    _, raw = key_create(project=project, name="busy")
    keys_cache_clear()
    with django_assert_num_queries(1):
        for _ in range(5):
            key_authenticate(raw=raw)


async def test_async_code_finds_a_cached_key_without_a_query(django_assert_num_queries: Any) -> None:
    """The test has no database: a query would fail it."""
    caller = keys.Caller(key_id=1, public_id="accept0001", org_id=1, project_id=1, tenant="1")
    digest = keys.digest(GIVEN_KEY, keys.peppers()[0])
    keys._cache.put(digest, caller, generation=keys._cache.generation)
    assert await keys.key_authenticate(raw=GIVEN_KEY) is caller


def test_a_change_takes_effect_at_the_next_request_of_this_process(
    project: Project, django_capture_on_commit_callbacks: Any
) -> None:
    key, raw = key_create(project=project, name="narrowed")
    assert key_authenticate(raw=raw).models is None
    with django_capture_on_commit_callbacks(execute=True):
        key.model_names = ["small"]
        key_update(key=key)
    assert key_authenticate(raw=raw).models == frozenset({"small"})
    with django_capture_on_commit_callbacks(execute=True):
        key_disable(key=key)
    with pytest.raises(KeyInvalid):
        key_authenticate(raw=raw)


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("2001:db8::5", True),
        ("11.0.0.1", False),
        ("", False),
        ("10.0.0.1, evil", False),
    ],
)
def test_networks_restrict_a_key(project: Project, address: str, is_allowed: bool) -> None:
    _, raw = key_create(project=project, name="inside", networks=["10.0.0.0/8", "2001:db8::/32"])
    if is_allowed:
        assert key_authenticate(raw=raw, address=address)
    else:
        with pytest.raises(KeyForbidden, match="network"):
            key_authenticate(raw=raw, address=address)


def test_origins_restrict_browsers_only(project: Project) -> None:
    _, raw = key_create(project=project, name="page", origins=["https://app.example.org"])
    assert key_authenticate(raw=raw)
    assert key_authenticate(raw=raw, origin="https://app.example.org")
    with pytest.raises(KeyForbidden, match="origin"):
        key_authenticate(raw=raw, origin="https://evil.example")


@pytest.mark.parametrize(
    "policy",
    [
        {"rights": ["root"]},
        {"networks": ["10.0.0.1/8"]},
        {"networks": ["everywhere"]},
        {"origins": ["https://app.example.org/path"]},
        {"origins": ["javascript:alert(1)"]},
        {"requests_per_minute": 0},
        {"model_names": [""]},
        {"networks": ["10.0.0.0/8"] * 101},
    ],
)
def test_an_invalid_policy_is_refused(project: Project, policy: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        key_create(project=project, name="odd", **policy)
    assert not ApiKey.objects.exists()
