"""The pages of workers and of live requests, and the JSON that a live page polls where it has no socket."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from chat.access.keys import KeyInvalid
from chat.access.policy import may
from chat.access.roles import Act
from chat.catalog.models import ServedModel
from chat.console.acts import confirm_page
from chat.console.figures import number
from chat.errors import ApiError
from chat.live.acts import run_cancel, run_find, worker_drain
from chat.live.panels import WORKERS, Panel, panel_read, panels
from chat.live.snapshot import LiveHost
from chat.live.source import AWAY, snapshot_or_none
from chat.live.warm_up import model_warm_up
from chat.live.ways import MAX_NAME_CHARS, way_of
from engine.api import EngineError

View = Callable[..., HttpResponse]


@never_cache
@require_safe
def workers(request: HttpRequest) -> HttpResponse:
    """Show the workers, their models and the live requests. Raises PermissionDenied."""
    panel = Panel(WORKERS)
    if not panel.is_seen_by(request.user):
        raise PermissionDenied
    context = admin.site.each_context(request) | live_context(request, panel) | {"title": _("Workers")}
    return TemplateResponse(request, "admin/live/workers.html", context)


def live_context(request: HttpRequest, panel: Panel) -> dict[str, Any]:
    """Return what a page needs to show a panel at once, and to keep it live."""
    asked = panel_read(panel.view, panel.model)
    assert asked is not None
    return {"panel": asked, "panel_html": panels.html(asked.of(request.user), snapshot_or_none())}


@never_cache
@require_safe
def snapshot(request: HttpRequest) -> HttpResponse:
    """Answer with what the socket would say now. Raises PermissionDenied, and Http404 for an unknown panel."""
    query = request.GET
    asked = panel_read(query.get("view", ""), query.get("model", ""), query.get("lang", ""))
    if asked is None:
        raise Http404("There is no such live panel: view is workers, models, or model with the name of one.")
    if not asked.is_seen_by(request.user):
        raise PermissionDenied
    found = snapshot_or_none()
    text = panels.text(asked.of(request.user), found)
    return HttpResponse(text, content_type="application/json", status=200 if found else 503)


def _manages(view: View) -> View:
    """Return a view for those who may manage workers."""

    @wraps(view)
    def checked(request: HttpRequest, **address: Any) -> HttpResponse:
        if not may(request.user, Act.WORKERS_MANAGE):
            raise PermissionDenied
        return view(request, **address)

    return checked


@_manages
def drain(request: HttpRequest, node: str) -> HttpResponse:
    host = _host(node)
    effect = _("It takes no new requests and loads nothing until it is resumed or restarted. ") + ngettext(
        "%(number)s live request ends undisturbed.", "%(number)s live requests end undisturbed.", host.num_live
    ) % {"number": host.num_live}
    return _act(request, node, _("Drain"), effect, lambda: worker_drain(node=node, is_draining=True))


@_manages
def resume(request: HttpRequest, node: str) -> HttpResponse:
    _host(node)
    effect = _("It takes requests and loads models again.")
    return _act(request, node, _("Resume"), effect, lambda: worker_drain(node=node, is_draining=False))


@_manages
def cancel(request: HttpRequest, run_id: str) -> HttpResponse:
    """Confirm with what it hits, then stop a request."""
    try:
        run = run_find(run_id=run_id)
    except AWAY as error:
        return _failed(request, error)
    if run is None:
        messages.warning(request, _("This request has ended already."))
        return redirect("admin:workers")
    effect = _("1 live request will be stopped. Its client gets what has been generated so far.")
    subject = f"{run.model} · {run_id}"
    return _act(request, subject, _("Cancel"), effect, lambda: run_cancel(run_id=run_id), is_dangerous=True)


def warm(request: HttpRequest, pk: int) -> HttpResponse:
    """Confirm, then have a model generate five tokens and say how long that took."""
    if not may(request.user, Act.MODELS_MANAGE):
        raise PermissionDenied
    model = get_object_or_404(ServedModel, pk=pk)
    back = reverse("admin:chat_servedmodel_change", args=[model.pk])
    if request.method != "POST":
        effect = _("It generates five real tokens, which shows that it computes, and is loaded for that if it is not.")
        return confirm_page(request, act=_("Warm up"), subject=model.name, effect=effect, back=back)
    try:
        done = model_warm_up(user=request.user, model=model, route=request.path)
        said = _("%(name)s generated %(number)s tokens in %(seconds)s s.")
        values = {"name": model.name, "number": done.num_tokens, "seconds": number(done.seconds, 2)}
        messages.success(request, said % values)
    except KeyInvalid:
        messages.error(request, _("Your account may not chat, and a warm-up counts as a chat of yours."))
    except (ApiError, EngineError) as error:
        said = _("%(name)s could not be warmed up: %(why)s")
        messages.error(request, said % {"name": model.name, "why": error.message})
    return redirect(back)


@never_cache
@require_safe
def try_name(request: HttpRequest) -> HttpResponse:
    """Show which model a request for a name would get now. Raises PermissionDenied."""
    if not may(request.user, Act.MODELS_SEE):
        raise PermissionDenied
    name = request.GET.get("name", "").strip()[:MAX_NAME_CHARS]
    found = snapshot_or_none()
    way = way_of(name, found) if "name" in request.GET else None
    context = {"title": _("Try a model name"), "name": name, "way": way, "is_known": found is not None}
    return TemplateResponse(request, "admin/live/try.html", admin.site.each_context(request) | context)


def _host(node: str) -> LiveHost:
    """Return a worker that is there. Raises Http404."""
    found = snapshot_or_none()
    if found is None:
        raise Http404(_("Valkey does not answer, so that nothing is known of workers."))
    for host in found.hosts:
        if host.node == node:
            return host
    raise Http404(_("There is no such worker."))


def _act(
    request: HttpRequest, subject: str, act: str, effect: str, do: Callable[[], object], *, is_dangerous: bool = False
) -> HttpResponse:
    """Confirm an act, then do it. It returns False where it came too late."""
    if request.method != "POST":
        back = reverse("admin:workers")
        return confirm_page(request, act=act, subject=subject, effect=effect, back=back, is_dangerous=is_dangerous)
    try:
        is_done = do() is not False
    except Exception as error:
        # Any error of Valkey's or the broker's client.
        return _failed(request, error)
    if not is_done:
        messages.warning(request, _("This request has ended already."))
        return redirect("admin:workers")
    messages.success(request, _("%(act)s: asked for %(subject)s.") % {"act": act, "subject": subject})
    return redirect("admin:workers")


def _failed(request: HttpRequest, error: Exception) -> HttpResponse:
    messages.error(request, _("The workers cannot be reached: %(why)s") % {"why": error})
    return redirect("admin:workers")


def _page(route: str, view: View, name: str) -> Any:
    return path(route, admin.site.admin_view(view), name=name)


admin.site.pages.extend(
    [
        _page("workers/", workers, "workers"),
        _page("live/snapshot", snapshot, "live_snapshot"),
        _page("workers/<str:node>/drain/", drain, "worker_drain"),
        _page("workers/<str:node>/resume/", resume, "worker_resume"),
        _page("models/<int:pk>/warm/", warm, "model_warm"),
        _page("models/try/", try_name, "model_try"),
        _page("requests/<str:run_id>/cancel/", cancel, "request_cancel"),
    ]
)
