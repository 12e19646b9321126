"""The first start of an installation, and the callers that stand for users and for requests without a key.

An installation begins with one organisation, one project, one administrator and one key.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from importlib import import_module
from types import SimpleNamespace
from typing import cast

from django.conf import settings
from django.contrib.auth import get_user, get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.sessions.backends.base import UpdateError
from django.db import transaction
from django.http import HttpRequest

from chat.access.chat_projects import chat_project, default_project
from chat.access.keys import (
    Caller,
    KeyInvalid,
    KeyRefused,
    key_caller,
    key_create,
    key_has_secret,
    key_public_id,
    models_allowed,
    wider_scopes,
)
from chat.access.memberships import membership_create
from chat.access.models import ApiKey, Project
from chat.access.people import playground_is_open_to
from chat.access.roles import Role
from chat.access.sessions import session_touch

ADMIN_NAME = "admin"
MAX_NAMES = 10


class UserUnknown(Exception):
    """The error for a user name that does not exist; the message lists some that do."""

    def __init__(self, name: str, known: list[str]) -> None:
        others = f"there are {', '.join(known)}" if known else "there is none yet: run make serve first"
        super().__init__(f"no user is named {name!r}; {others}")


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What the first start has made, for the supervisor to print once. None for what existed or was given."""

    admin_name: str
    admin_created: bool
    admin_password: str | None
    api_key: str | None


def bootstrap_create(*, admin_password: str | None = None, api_key: str | None = None) -> Bootstrap:
    """Create the organisation, project, administrator and key that are missing. Repeat calls change nothing.

    It creates an administrator if there is no superuser, and a key if there never was one or `api_key` is unknown. It
    leaves alone what an administrator has changed since. Raises KeyRefused if `api_key` is malformed, or if its key id
    exists with another secret.
    """
    with transaction.atomic():
        project = default_project()
        admin_created = not get_user_model().objects.filter(is_superuser=True).exists()
        shown_password = None
        if admin_created:
            shown_password = None if admin_password else secrets.token_urlsafe(12)
            admin = get_user_model().objects.create_superuser(ADMIN_NAME, "", admin_password or shown_password)
            membership_create(user=admin, org=project.org, role=Role(Role.OWNER))
        shown_key = None
        if api_key:
            _ensure_key(project, api_key)
        elif not ApiKey.objects.exists():
            shown_key = key_create(project=project, name="First key")[1]
    return Bootstrap(
        admin_name=ADMIN_NAME, admin_created=admin_created, admin_password=shown_password, api_key=shown_key
    )


def password_renew(*, name: str) -> str:
    """Set a new random password, which ends the user's sessions, and return it. Raises UserUnknown."""
    users = get_user_model().objects
    user = users.filter(username=name).first()
    if user is None:
        raise UserUnknown(name, list(users.order_by("username").values_list("username", flat=True)[:MAX_NAMES]))
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    with transaction.atomic():
        user.save(update_fields=["password"])
    return password


def session_user(*, session_key: str | None, is_use: bool = True) -> AbstractBaseUser | AnonymousUser:
    """Return the user of a session; an anonymous one if the session has ended.

    `is_use`: this is an act of the person, which moves the end of the session, and no page that looks by itself.
    """
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(cast(HttpRequest, SimpleNamespace(session=session)))
    if is_use and user.is_authenticated and session_touch(session):
        try:
            session.save()
        except UpdateError:  # it was ended at this moment
            return AnonymousUser()
    return user


def playground_caller(*, user: AbstractBaseUser | AnonymousUser) -> Caller:
    """Return the caller for a signed-in user of the playground: no key, the user's project with its models and limits.

    Each user is a tenant, so that chats of two users share no cached prefix. Raises KeyInvalid without the permission.
    """
    if not playground_is_open_to(user):
        raise KeyInvalid
    project = chat_project(user=user)
    caller = _caller_without_key(f"user:{user.pk}", project, account_id=user.pk)
    return replace(caller, keeps_texts=project.keeps_chat_texts and settings.LIGHTCONE_CHAT_ADMIN_READ)


def chats_may_be_shared(*, user: AbstractBaseUser | AnonymousUser) -> bool:
    """Return True if links to a user's chats may be made and shown, by the server's setting and the user's project.

    Nothing is shown of people to whom the playground has closed: their chats count to no project that could forbid it.
    """
    return bool(settings.LIGHTCONE_CHAT_SHARING and playground_is_open_to(user) and chat_project(user=user).may_share)


def anonymous_caller() -> Caller:
    """Return the caller of requests without a key, which an operator may allow: inference in the default project."""
    return _caller_without_key("anonymous", default_project())


def caller_of_key(*, public_id: str, project_id: int) -> Caller:
    """Return the caller for background work of this key. An empty id stands for requests without a key.

    Raises KeyInvalid if the key is invalid or not in this project, or if requests without a key are not allowed.
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


def _caller_without_key(kind: str, project: Project, *, account_id: int | None = None) -> Caller:
    return Caller(
        key_id=0,
        public_id="",
        org_id=project.org_id,
        project_id=project.pk,
        tenant=f"{project.pk}:{kind}",
        keeps_texts=project.keeps_api_texts,
        stores_nothing=project.stores_nothing,
        models=models_allowed(None, project),
        wider_scopes=wider_scopes(project=project, account_id=account_id),
        account_id=account_id,
    )


def _ensure_key(project: Project, raw: str) -> None:
    key = ApiKey.objects.filter(public_id=key_public_id(raw=raw)).first()
    if key is None:
        key_create(project=project, name="First key", raw=raw)
    elif key.deleted_at is None and not key_has_secret(key=key, raw=raw):
        raise KeyRefused(
            f"the key id {key.public_id} exists with another secret: choose another key id, or delete that key"
        )
