"""How values of the usage's dimensions are called: projects, keys and people by the names that they have now."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.contrib.auth import get_user_model
from django.utils.translation import gettext as _

from chat.access.models import ApiKey, Org, Project, ServiceAccount
from chat.access.people import people_seen
from chat.access.selectors import keys_seen, projects_seen
from chat.usage.models import STATUS_LABELS, Dimension
from chat.usage.selectors import ORG


def names_of(group: str, values: Collection[Any]) -> dict[Any, str]:
    """Return the name of each value. What has been deleted is called by its id."""
    texts = {value: str(value) for value in values}
    known = _known(group, [text for text in texts.values() if text])
    return {value: known.get(text) or _unknown(group, text) for value, text in texts.items()}


def name_for(user: Any, group: str, value: Any) -> str:
    """Return the name of a value that a user asks for and that no row shown has: its id, if the user sees no such."""
    text = str(value)
    people = get_user_model()._default_manager
    match group:
        case Dimension.KEY:
            is_seen = keys_seen(user).filter(public_id=text).exists()
        case Dimension.PROJECT:
            is_seen = projects_seen(user).filter(pk=text).exists()
        case Dimension.USER if text.startswith("-"):
            is_seen = ServiceAccount.objects.filter(pk=text[1:], project__in=projects_seen(user)).exists()
        case Dimension.USER:
            is_seen = text == str(user.pk) or people_seen(actor=user, people=people.filter(pk=text)).exists()
        case _:
            is_seen = True
    if is_seen:
        return names_of(group, [value])[value]
    return text if group == Dimension.KEY else f"#{text}"


def _known(group: str, texts: Collection[str]) -> dict[str, str]:
    match group:
        case Dimension.STATUS:
            return {kind: str(label) for kind, label in STATUS_LABELS.items()}
        case Dimension.KEY:
            rows = ApiKey.objects.filter(public_id__in=texts).values_list("public_id", "name")
            return {public_id: f"{name} ({public_id})" for public_id, name in rows}
        case Dimension.PROJECT:
            projects = Project.objects.filter(pk__in=texts).values_list("pk", "org__name", "name")
            return {str(pk): f"{org} / {name}" for pk, org, name in projects}
        case Dimension.USER:
            accounts = ServiceAccount.objects.filter(pk__in=[text[1:] for text in texts if text.startswith("-")])
            programs = {
                f"-{pk}": _("%(name)s (service account)") % {"name": name}
                for pk, name in accounts.values_list("pk", "name")
            }
            people = get_user_model()._default_manager.filter(pk__in=texts)
            return programs | {str(pk): name for pk, name in people.values_list("pk", "username")}
        case _ if group == ORG:
            return {str(pk): name for pk, name in Org.objects.filter(pk__in=texts).values_list("pk", "name")}
    return {}


def _unknown(group: str, text: str) -> str:
    if not text or text == "0":
        return _("(none)")
    return text if group in (Dimension.MODEL, Dimension.ROUTE) else _("%(id)s (deleted)") % {"id": text}
