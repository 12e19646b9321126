"""The first start creates missing accounts once; later starts keep the administrator's changes."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.utils import timezone

from chat.access.accounts import anonymous_caller, bootstrap_create, playground_caller
from chat.access.keys import (
    KeyInvalid,
    KeyRefused,
    key_delete,
    key_disable,
    key_rotate,
    keys_cache_clear,
)
from chat.models import ApiKey, Org, Project
from tests.chat.records import key_authenticate
from tests.people import member

pytestmark = pytest.mark.django_db
GIVEN_KEY = "lc_accept0001_" + "0123456789abcdef" * 3


def test_the_first_start_creates_and_shows_secrets(django_user_model: Any) -> None:
    made = bootstrap_create()
    assert made.admin_created
    assert made.api_key is not None
    assert made.admin_password is not None
    admin = django_user_model.objects.get(username=made.admin_name)
    assert admin.is_superuser
    assert admin.check_password(made.admin_password)
    assert key_authenticate(raw=made.api_key).project_id == Project.objects.get().pk


def test_later_starts_create_and_show_nothing(django_user_model: Any) -> None:
    bootstrap_create()
    again = bootstrap_create(admin_password="other")
    assert (again.admin_created, again.admin_password, again.api_key) == (False, None, None)
    assert (
        Org.objects.count(),
        Project.objects.count(),
        ApiKey.objects.count(),
        django_user_model.objects.count(),
    ) == (1, 1, 1, 1)
    assert not django_user_model.objects.get().check_password("other")


def test_given_secrets_are_used_and_not_shown(django_user_model: Any) -> None:
    made = bootstrap_create(admin_password="given", api_key=GIVEN_KEY)
    assert (made.admin_password, made.api_key) == (None, None)
    assert django_user_model.objects.get().check_password("given")
    assert key_authenticate(raw=GIVEN_KEY).public_id == "accept0001"
    bootstrap_create(admin_password="given", api_key=GIVEN_KEY)
    assert ApiKey.objects.count() == 1


def test_an_invalid_configured_key_is_refused_and_nothing_is_created() -> None:
    with pytest.raises(KeyRefused, match="lc_<8 to 16"):
        bootstrap_create(api_key="sk-secret")
    assert not Project.objects.exists()


def test_a_known_key_id_with_another_secret_is_refused() -> None:
    bootstrap_create(api_key=GIVEN_KEY)
    with pytest.raises(KeyRefused, match="another secret"):
        bootstrap_create(api_key="lc_accept0001_" + "f" * 48)


@pytest.mark.parametrize("act", [key_disable, key_delete, key_rotate])
def test_a_start_never_revives_a_key(act: Any) -> None:
    bootstrap_create(api_key=GIVEN_KEY)
    act(key=ApiKey.objects.get())
    bootstrap_create(api_key=GIVEN_KEY)
    assert ApiKey.objects.count() == 1
    keys_cache_clear()
    if act is not key_rotate:
        with pytest.raises(KeyInvalid):
            key_authenticate(raw=GIVEN_KEY)


def test_an_expired_key_does_not_stop_a_start() -> None:
    bootstrap_create(api_key=GIVEN_KEY)
    ApiKey.objects.update(expires_at=timezone.now())
    keys_cache_clear()
    bootstrap_create(api_key=GIVEN_KEY)


def test_anonymous_callers_use_the_default_project_with_their_own_tenant(project: Project) -> None:
    caller = anonymous_caller()
    assert (caller.project_id, caller.public_id) == (project.pk, "")
    assert caller.tenant != str(project.pk)
    assert caller.rights == {"inference"}


def test_playground_users_have_their_own_tenants(django_user_model: Any, project: Project) -> None:
    first, second = (playground_caller(user=member(name)) for name in ("a", "b"))
    assert first.project_id == project.pk
    assert first.tenant != second.tenant
    assert first.models is None


def test_users_without_the_playground_permission_have_no_caller(django_user_model: Any, project: Project) -> None:
    member("taken away", may_chat=False)
    member("inactive", is_active=False)
    django_user_model.objects.create_user("of no organisation")
    for user in (AnonymousUser(), *django_user_model.objects.all()):
        with pytest.raises(KeyInvalid):
            playground_caller(user=user)
