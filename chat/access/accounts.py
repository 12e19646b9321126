"""People and the first start: an installation begins with one organisation, one project, one administrator and one key."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import cast

from django.conf import settings
from django.contrib.auth import get_user, get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import transaction
from django.http import HttpRequest

from chat.access.keys import Caller, KeyInvalid, KeyRefused, key_caller, key_create, key_has_secret, key_public_id
from chat.access.models import ApiKey, Org, Project, Right
from chat.access.permissions import playground_is_open_to

ADMIN_NAME = "admin"
DEFAULT_NAME = "Default"
MAX_NAMES = 10


class UserUnknown(Exception):
    """No user has this name; the message lists some that there are."""

    def __init__(self, name: str, known: list[str]) -> None:
        others = f"there are {', '.join(known)}" if known else "there is none yet: run make serve first"
        super().__init__(f"no user is named {name!r}; {others}")


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What was made now and by us; None for what existed or was given. The supervisor prints it once."""

    admin_name: str
    admin_created: bool
    admin_password: str | None
    api_key: str | None


def bootstrap_create(*, admin_password: str | None = None, api_key: str | None = None) -> Bootstrap:
    """Make what a fresh installation lacks; harmless on every later start.

    An administrator is made when there is no superuser, a key when there never was one or `api_key` is not known yet.
    What the administrator changed since (password, disabled or deleted key) is left alone.
    Raises KeyRefused when `api_key` is malformed, or its key id exists with another secret.
    """
    with transaction.atomic():
        project = default_project()
        admin_created = not get_user_model().objects.filter(is_superuser=True).exists()
        shown_password = None
        if admin_created:
            shown_password = None if admin_password else secrets.token_urlsafe(12)
            get_user_model().objects.create_superuser(ADMIN_NAME, "", admin_password or shown_password)
        shown_key = None
        if api_key:
            _ensure_key(project, api_key)
        elif not ApiKey.objects.exists():
            shown_key = key_create(project=project, name="First key")[1]
    return Bootstrap(
        admin_name=ADMIN_NAME, admin_created=admin_created, admin_password=shown_password, api_key=shown_key
    )


def password_renew(*, name: str) -> str:
    """Give a user a new random password, which ends their sessions. Return it; it is not kept. Raises UserUnknown."""
    users = get_user_model().objects
    user = users.filter(username=name).first()
    if user is None:
        raise UserUnknown(name, list(users.order_by("username").values_list("username", flat=True)[:MAX_NAMES]))
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    user.save(update_fields=["password"])
    return password


def default_project() -> Project:
    """The oldest project; made, with its organisation, where there is none."""
    project: Project | None = Project.objects.order_by("id").first()
    if project is None:
        org = Org.objects.order_by("id").first() or Org.objects.create(name=DEFAULT_NAME)
        project = Project.objects.create(org=org, name=DEFAULT_NAME)
    return project


def session_caller(*, session_key: str | None) -> Caller:
    """`playground_caller` for whoever is signed in with this session now. Raises KeyInvalid when it has ended, as by signing out, a new
    password, or a user made inactive."""
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    return playground_caller(user=get_user(cast(HttpRequest, SimpleNamespace(session=session))))


def playground_caller(*, user: AbstractBaseUser | AnonymousUser) -> Caller:
    """The caller for a signed-in user of the playground: no key, all models, the default project.

    The tenant is the user's own, so that chats of two people share no cached prefix. Raises KeyInvalid for who may not use it.
    """
    if not playground_is_open_to(user):
        raise KeyInvalid
    project = default_project()
    return Caller(
        key_id=0,
        public_id="",
        org_id=project.org_id,
        project_id=project.pk,
        tenant=f"{project.pk}:user:{user.pk}",
        rights=frozenset({str(Right.INFERENCE)}),
    )


def anonymous_caller() -> Caller:
    """The caller of a request without a key, where the operator allows them: inference in the default project."""
    project = default_project()
    return Caller(
        key_id=0, public_id="", org_id=project.org_id, project_id=project.pk, tenant=f"{project.pk}:anonymous"
    )


def caller_of_key(*, public_id: str, project_id: int) -> Caller:
    """The caller for work that this key has left behind; an empty id stands for requests without a key.

    Raises KeyInvalid for a key that is good no more, or not in this project, and where the operator does not allow to have none.
    """
    if public_id:
        caller = key_caller(public_id=public_id)
    elif settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK:
        caller = anonymous_caller()
    else:
        raise KeyInvalid
    if caller.project_id != project_id:
        raise KeyInvalid
    return caller


def _ensure_key(project: Project, raw: str) -> None:
    key = ApiKey.objects.filter(public_id=key_public_id(raw=raw)).first()
    if key is None:
        key_create(project=project, name="First key", raw=raw)
    elif key.deleted_at is None and not key_has_secret(key=key, raw=raw):
        raise KeyRefused(
            f"the key id {key.public_id} exists with another secret: choose another key id, or delete that key"
        )
