"""The look of the console and its sidebar: django-unfold's UNFOLD setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


def _static(path: str) -> Callable[..., str]:
    """Return a function that returns the URL of a static file: `static` needs the settings, which import this."""
    return lambda _request=None: static(path)


def _item(title: Promise, icon: str, url_name: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": reverse_lazy(url_name)}


def _needs(permission: str) -> Callable[[HttpRequest], bool]:
    return lambda request: request.user.has_perm(permission)


def _needs_any(*permissions: str) -> Callable[[HttpRequest], bool]:
    return lambda request: any(request.user.has_perm(permission) for permission in permissions)


def _list(title: Promise, icon: str, model: str) -> dict[str, Any]:
    """Return the sidebar's entry for the list of a model (`app.name`), visible to users who may view or change it."""
    app_label, name = model.split(".")

    def is_open(request: HttpRequest) -> bool:
        return any(request.user.has_perm(f"{app_label}.{verb}_{name}") for verb in ("view", "change"))

    return _item(title, icon, f"admin:{app_label}_{name}_changelist") | {"permission": is_open}


ALERTS = {"permission": _needs_any("chat.change_alertchannel", "chat.view_alertrule")}
"""For those who manage budgets or see the installation's alerts. The pages open for all who see usage."""
SHADES = ("50", "100", "200", "300", "400", "500", "600", "700", "800", "900", "950")

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Lightcone",
    "SITE_HEADER": "Lightcone",
    "SITE_URL": "/",
    "SITE_ICON": _static("chat/mark.svg"),
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _static("chat/mark.svg")}],
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_BACK_BUTTON": True,
    "STYLES": [_static("chat/tokens.css"), _static("chat/admin/console.css"), _static("chat/admin/phone.css")],
    "SCRIPTS": [_static("chat/theme.js"), _static("chat/admin/theme.js"), _static("chat/admin/console.js")],
    "DASHBOARD_CALLBACK": "chat.system.pages.overview_context",
    "COLORS": {
        # The ramps of tokens.css, so that pages of django-unfold and ours have the same greys.
        "base": {shade: f"var(--grey-{shade})" for shade in SHADES},
        "primary": {shade: f"var(--violet-{shade})" for shade in SHADES},
    },
    "BORDER_RADIUS": "8px",
    "ACCOUNT": {"navigation": [{"title": _("Your account"), "link": reverse_lazy("account")}]},
    "SIDEBAR": {
        "show_search": False,
        "navigation": [
            {
                "items": [
                    _item(_("Overview"), "monitoring", "admin:index"),
                    _list(_("Requests"), "list_alt", "chat.requestlog"),
                    _item(_("Usage"), "bar_chart", "admin:usage"),
                    _list(_("Batches"), "inventory_2", "chat.batch"),
                    _list(_("Files"), "draft", "chat.projectfile"),
                ]
            },
            {
                "title": _("Access"),
                "separator": True,
                "items": [
                    _list(_("API keys"), "key", "chat.apikey"),
                    _list(_("Admin keys"), "vpn_key", "chat.adminkey"),
                    _list(_("Projects"), "folder_open", "chat.project"),
                    _list(_("Service accounts"), "smart_toy", "chat.serviceaccount"),
                    _list(_("Budgets"), "savings", "chat.budget"),
                    _list(_("Organisations"), "domain", "chat.org"),
                    _list(_("Members"), "group", "chat.membership"),
                    _list(_("Users"), "person", "auth.user"),
                    _list(_("Invitations"), "mail", "chat.invitation"),
                    _list(_("Audit"), "history", "chat.auditentry"),
                ],
            },
            {
                "title": _("Alerts"),
                "separator": True,
                "items": [
                    _list(_("Alerts"), "notifications", "chat.alert") | ALERTS,
                    _list(_("Channels"), "send", "chat.alertchannel") | ALERTS,
                    _list(_("Deliveries"), "outbox", "chat.alertdelivery") | ALERTS,
                    _list(_("Rules"), "rule", "chat.alertrule"),
                ],
            },
            {
                "title": _("Serving"),
                "separator": True,
                "items": [
                    _item(_("Workers"), "memory", "admin:workers") | {"permission": _needs("chat.see_workers")},
                    _list(_("Models"), "deployed_code", "chat.servedmodel"),
                    _list(_("Prices"), "sell", "chat.modelprice"),
                    _list(_("Adapters"), "tune", "chat.modeladapter"),
                    _list(_("Weighted aliases"), "call_split", "chat.weightedalias"),
                    _list(_("Pulls and imports"), "download", "chat.modeljob"),
                    _item(_("Mail"), "outgoing_mail", "admin:mail") | {"permission": _needs("chat.see_system")},
                    _item(_("System"), "dns", "admin:system") | {"permission": _needs("chat.see_system")},
                ],
            },
        ],
    },
}
