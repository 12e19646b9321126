"""What a request leads to in the console: key, project, person, model, batch, files, as far as the user sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from chat.access.limit_columns import LIMIT_COLUMNS
from chat.console.figures import number
from chat.usage.models import RequestLog


@dataclass(frozen=True, slots=True)
class Link:
    """A thing that a request names. `url` is empty for one that is gone, or that the user does not see."""

    kind: str
    text: str
    url: str = ""


def links_of(site: Any, request: HttpRequest, log: RequestLog) -> list[Link]:
    """Return what a request names, each with its page if the user sees that."""
    return [
        *_links(site, request, "chat.Project", _("Project"), pk=log.project_id),
        *_links(site, request, "chat.ApiKey", _("API key"), gone=log.key_public_id, public_id=log.key_public_id),
        *_account_links(site, request, log),
        *_links(site, request, "chat.ServedModel", _("Model"), gone=log.model, name=log.model),
        *_batch_links(site, request, log.batch_id),
    ]


def limits_of(site: Any, request: HttpRequest, log: RequestLog) -> list[tuple[str, str]]:
    """Return the limits that the request's key has now, if the user sees the key."""
    key: Any = _row(site, request, "chat.ApiKey", public_id=log.key_public_id)
    if key is None:
        return []
    limits = ((str(key._meta.get_field(name).verbose_name), getattr(key, name)) for name in LIMIT_COLUMNS)
    found = [(f"{name[:1].upper()}{name[1:]}", number(limit)) for name, limit in limits if limit]
    return found or [(_("none"), "")]


def _account_links(site: Any, request: HttpRequest, log: RequestLog) -> Iterator[Link]:
    """Name the person or the service account of a request."""
    number = log.account_id or 0
    if number < 0:
        yield from _links(site, request, "chat.ServiceAccount", _("Service account"), gone=f"#{number}", pk=-number)
    else:
        yield from _links(site, request, "auth.User", _("Person"), gone=_account_name(log), pk=number)


def _account_name(log: RequestLog) -> str:
    return f"#{log.account_id}" if log.account_id else ""


def _batch_links(site: Any, request: HttpRequest, batch_id: str) -> Iterator[Link]:
    if not batch_id:
        return
    batch: Any = _row(site, request, "chat.Batch", public_id=batch_id)
    yield from _links(site, request, "chat.Batch", _("Batch"), gone=batch_id, public_id=batch_id)
    if batch is not None:
        names = (
            (_("Input file"), "input_file_id"),
            (_("Output file"), "output_file_id"),
            (_("Errors"), "error_file_id"),
        )
        for kind, file_id in ((kind, getattr(batch, name)) for kind, name in names):
            if file_id:
                yield from _links(site, request, "chat.ProjectFile", kind, gone=file_id, public_id=file_id)


def _links(site: Any, request: HttpRequest, label: str, kind: str, *, gone: str = "", **where: Any) -> Iterator[Link]:
    row = _row(site, request, label, **where)
    if row is not None:
        name = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
        yield Link(kind, getattr(row, "filename", "") or str(row), reverse(name, args=[row.pk]))
    elif gone:
        yield Link(kind, gone)


def _row(site: Any, request: HttpRequest, label: str, **where: Any) -> Model | None:
    """Return a row that the user sees on its page. Rooms above this one are found by name."""
    if not all(where.values()):
        return None
    page = site.get_model_admin(apps.get_model(label))
    found: Model | None = (
        page.get_queryset(request).filter(**where).first() if page.has_view_permission(request) else None
    )
    return found
