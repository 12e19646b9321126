"""How the admin console looks and what its sidebar lists (django-unfold's UNFOLD setting). The pages are in chat.admin."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy


def _mark(_request: HttpRequest | None = None) -> str:
    return static("chat/mark.svg")


def _console_style(_request: HttpRequest | None = None) -> str:
    return static("chat/admin/console.css")


def _console_script(_request: HttpRequest | None = None) -> str:
    return static("chat/admin/console.js")


def _item(title: str, icon: str, url_name: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": reverse_lazy(url_name)}


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Lightcone",
    "SITE_HEADER": "Lightcone",
    "SITE_URL": "/",
    "SITE_ICON": _mark,
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _mark}],
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_BACK_BUTTON": True,
    "STYLES": [_console_style],
    "SCRIPTS": [_console_script],
    "DASHBOARD_CALLBACK": "chat.admin.dashboard.dashboard_context",
    "LOGIN": {"form": "chat.console_sign_in.ConsoleSignInForm"},
    "COLORS": {
        "primary": {
            "50": "#f6f4fe",
            "100": "#eeebfd",
            "200": "#ded8fb",
            "300": "#c6bcf9",
            "400": "#a99cff",
            "500": "#7e6eea",
            "600": "#5546c9",
            "700": "#473aab",
            "800": "#3b318b",
            "900": "#302970",
            "950": "#1e1a47",
        },
    },
    "SIDEBAR": {
        "show_search": False,
        "navigation": [
            {
                "items": [
                    _item("Overview", "monitoring", "admin:index"),
                    _item("Requests", "list_alt", "admin:chat_requestlog_changelist"),
                    _item("Usage", "bar_chart", "admin:chat_usagehour_changelist"),
                    _item("Batches", "inventory_2", "admin:chat_batch_changelist"),
                    _item("Files", "draft", "admin:chat_projectfile_changelist"),
                ]
            },
            {
                "title": "Access",
                "separator": True,
                "items": [
                    _item("API keys", "key", "admin:chat_apikey_changelist"),
                    _item("Projects", "folder_open", "admin:chat_project_changelist"),
                    _item("Organisations", "domain", "admin:chat_org_changelist"),
                    _item("Users", "person", "admin:auth_user_changelist"),
                ],
            },
            {"title": "Serving", "separator": True, "items": [_item("Models", "deployed_code", "admin:chat_servedmodel_changelist")]},
        ],
    },
}
