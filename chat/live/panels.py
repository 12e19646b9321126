"""The parts of pages that change by the second: who may see which, and their HTML, made once for all who look."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from django.conf import settings
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.translation import get_language

from chat.access.policy import may, standing_of
from chat.access.roles import Act, Reach
from chat.live.snapshot import LiveModel, Snapshot

WORKERS, MODELS, MODEL = "workers", "models", "model"
TEMPLATES = {
    WORKERS: "admin/live/workers_panel.html",
    MODELS: "admin/live/models_panel.html",
    MODEL: "admin/live/model_panel.html",
}
SEEN_BY = {WORKERS: Act.WORKERS_SEE, MODELS: Act.MODELS_SEE, MODEL: Act.MODELS_SEE}
MAX_KEPT = 64


@dataclass(frozen=True, slots=True)
class Panel:
    """What a page shows live."""

    view: str
    """workers, models or model"""
    model: str = ""
    """The name of the one model."""
    language: str = "en"
    manages: bool = False
    """The person may act on workers and models."""
    sees_all: bool = False
    """The person sees the names of all projects; else those in `org_ids` and `project_ids`."""
    org_ids: frozenset[int] = frozenset()
    project_ids: frozenset[int] = frozenset()

    def is_seen_by(self, user: Any) -> bool:
        return may(user, SEEN_BY[self.view])

    def of(self, user: Any) -> Panel:
        """Return the panel as this person sees it."""
        manages = may(user, Act.WORKERS_MANAGE) and may(user, Act.MODELS_MANAGE)
        if self.view != WORKERS:
            return replace(self, manages=manages)
        standing = standing_of(user)
        if standing.owns_installation:
            return replace(self, manages=manages, sees_all=True)
        whole = frozenset(standing.orgs(Act.PROJECTS_SEE, Reach.ORG))
        some = standing.project_ids if standing.orgs(Act.PROJECTS_SEE, Reach.PROJECTS) else frozenset()
        return replace(self, manages=manages, org_ids=whole, project_ids=some)

    def shows(self, org_id: int, project_id: int) -> bool:
        """Return True if the person sees the name of a project. Of one that is gone there is none to see."""
        return self.sees_all or not org_id or org_id in self.org_ids or project_id in self.project_ids


def panel_read(view: str, model: str = "", language: str = "") -> Panel | None:
    """Return the panel that a page asks for; None if there is no such panel."""
    if view not in TEMPLATES or bool(model) != (view == MODEL) or len(model) > 200:
        return None
    known = dict(settings.LANGUAGES)
    return Panel(view, model, language if language in known else get_language() or settings.LANGUAGE_CODE)


@dataclass(frozen=True, slots=True)
class Shown:
    """A panel at one moment: its HTML, and the whole message as JSON."""

    html: str
    text: str


class PanelCache:
    """What is said of the last snapshot, made once for each panel."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[float, Panel], Shown] = OrderedDict()

    def kept(self, panel: Panel, snapshot: Snapshot | None) -> str | None:
        """Return the message if it has been made. Does not block."""
        with self._lock:
            shown = self._kept.get(_moment(panel, snapshot))
        return shown.text if shown else None

    def text(self, panel: Panel, snapshot: Snapshot | None) -> str:
        """Return what the socket and the JSON route say."""
        return self._shown(panel, snapshot).text

    def html(self, panel: Panel, snapshot: Snapshot | None) -> str:
        return self._shown(panel, snapshot).html

    def _shown(self, panel: Panel, snapshot: Snapshot | None) -> Shown:
        key = _moment(panel, snapshot)
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        message = panel_message(panel, snapshot)
        shown = Shown(message["html"], json.dumps(message, separators=(",", ":")))
        with self._lock:
            for kept in [kept for kept in self._kept if kept[0] != key[0]]:
                del self._kept[kept]
            if len(self._kept) < MAX_KEPT:
                self._kept[key] = shown
        return shown


def _moment(panel: Panel, snapshot: Snapshot | None) -> tuple[float, Panel]:
    return snapshot.at if snapshot else 0.0, panel


panels = PanelCache()
"""Those of this process."""


def panel_html(panel: Panel, snapshot: Snapshot | None) -> str:
    """Render a panel. Without a snapshot it says that Valkey does not answer."""
    context = {"snapshot": snapshot, "manages": panel.manages, "rows": rows_of(panel, snapshot)}
    with translation.override(panel.language):
        return render_to_string(TEMPLATES[panel.view], context)


def rows_of(panel: Panel, snapshot: Snapshot | None) -> list[LiveModel]:
    if snapshot is None:
        return []
    models = snapshot.models()
    return [model for model in models if model.name == panel.model] if panel.view == MODEL else models


def panel_message(panel: Panel, snapshot: Snapshot | None) -> dict[str, Any]:
    """Return what the socket and the JSON route say of a panel: the figures, and the HTML that shows them."""
    if snapshot is None:
        return {"snapshot": None, "html": panel_html(panel, None)}
    snapshot = snapshot.seen_by(panel.shows)
    return {"snapshot": snapshot_data(panel, snapshot), "html": panel_html(panel, snapshot)}


def snapshot_data(panel: Panel, snapshot: Snapshot) -> dict[str, Any]:
    """Return the figures that a panel shows. Those of models leave out the workers and requests of others."""
    if panel.view == WORKERS:
        return snapshot.data()
    names = {model.name for model in rows_of(panel, snapshot)}
    data = snapshot.data()
    models = [model for host in data["hosts"] for model in host["models"]]
    models += data["unhosted"]
    return {
        "at": data["at"],
        "models": [model for model in models if model["name"] in names],
        "queued": {name: number for name, number in data["queued"].items() if name in names},
        "live": {name: number for name, number in data["live"].items() if name in names},
    }
