"""Console pages of API keys: list, create, change, rotate, disable, delete.

The text of a key is shown once, in the response to the form. It enters no session, message or log entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import action, display
from unfold.enums import ActionVariant

from chat.access import selectors
from chat.access.admin.key_forms import LIMIT_FIELDS, ApiKeyForm, DeleteForm, RotateForm
from chat.access.admin.limit_fields import limits_in_force
from chat.access.admin.scoped import ScopedPage
from chat.access.key_scope import KeyScope, own_keys
from chat.access.keys import DEFAULT_OVERLAP, key_create, key_delete, key_disable, key_enable, key_rotate, key_update
from chat.access.limit_columns import LIMIT_COLUMNS
from chat.access.models import ApiKey
from chat.access.policy import may
from chat.access.roles import Act, Reach
from chat.console.acts import act_page, shown_once_page
from chat.console.figures import number
from chat.console.fresh_form import FreshPage
from chat.console.pages import Labelled, column, expiry, instant

STATES = {
    "active": gettext_lazy("Active"),
    "disabled": gettext_lazy("Disabled"),
    "archived": gettext_lazy("Project archived"),
    "expired": gettext_lazy("Expired"),
}
STATE_COLOURS = {"active": "success", "disabled": "warning", "archived": "warning", "expired": "danger"}
LIMITS = (gettext_lazy("Limits"), {"fields": LIMIT_FIELDS})


class StateFilter(admin.SimpleListFilter):
    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(state, STATES[state]) for state in ("active", "disabled", "expired")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        now = timezone.now()
        if self.value() == "active":
            return queryset.filter(disabled_at=None, project__archived_at=None).exclude(expires_at__lte=now)
        if self.value() == "disabled":
            return queryset.exclude(disabled_at=None)
        if self.value() == "expired":
            return queryset.filter(expires_at__lte=now)
        return queryset


@admin.register(ApiKey)
class ApiKeyAdmin(FreshPage, ScopedPage):
    see, manage, org_column = Act.KEYS_SEE, Act.KEYS_MANAGE, "project__org_id"
    form = ApiKeyForm
    list_display = ("name", "show_text", "project", "show_owner", "show_state", "show_last_used", "show_expiry")
    list_filter = (StateFilter,)
    list_filter_submit = True
    search_fields = ("name", "public_id")
    list_per_page = 50
    actions = None
    only_saves = True
    actions_detail = ("rotate", "disable", "enable")
    readonly_fields = ("show_owner", "show_text", "show_state", "show_created", "show_last_used", "show_secrets")
    limits_shown = ("show_limits",)
    change_fieldsets = (
        (None, {"fields": ("name", "project", *readonly_fields)}),
        (gettext_lazy("What it may do"), {"fields": ("rights", "model_names", "networks", "origins", "expires_at")}),
        (gettext_lazy("Limits"), {"fields": (*limits_shown, *LIMIT_FIELDS)}),
    )
    add_fieldsets = (
        (gettext_lazy("What it may do"), {"fields": ("rights", "model_names", "networks", "origins")}),
        LIMITS,
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        return self.reached(request, selectors.keys_listed(), self.see)

    def own_rows(self, request: HttpRequest) -> Q:
        return own_keys(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Require a scope that covers the key, too. Unfold asks with an id; the actions ask again with the key."""
        return super().has_change_permission(request, obj) and (
            not isinstance(obj, ApiKey) or KeyScope(request.user).covers(obj)
        )

    def has_add_permission(self, request: HttpRequest) -> bool:
        if not super().has_add_permission(request):
            return False
        return may(request.user, Act.KEYS_MANAGE, least=Reach.ORG) or KeyScope(request.user).projects().exists()

    def get_fieldsets(self, request: HttpRequest, obj: ApiKey | None = None) -> Any:
        if obj:
            return self.with_fresh(request, obj, self.change_fieldsets)
        # Members make keys of their own only, so there is nothing to choose.
        chosen = ("is_own",) if may(request.user, Act.KEYS_MANAGE, least=Reach.ORG) else ()
        return ((None, {"fields": ("name", "project", *chosen, "expires_at")}), *self.add_fieldsets)

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        """Return what a form only shows: limits too, but for who may change those of others, and on a new key.

        The key of a service account stays in its project.
        """
        may_limit = obj is None or may(request.user, Act.LIMITS_MANAGE, org_id=obj.project.org_id, least=Reach.ORG)
        fixed = ("project",) if obj is not None and obj.service_account_id is not None else ()
        return (*fixed, *self.readonly_fields, *self.limits_shown, *(() if may_limit else LIMIT_COLUMNS))

    def get_autocomplete_fields(self, request: HttpRequest) -> tuple[str, ...]:
        return ("project",) if request.user.is_superuser else ()

    def get_form(
        self, request: HttpRequest, obj: ApiKey | None = None, change: bool = False, **options: Any
    ) -> type[ApiKeyForm]:
        form: type[ApiKeyForm] = super().get_form(request, obj, change, **options)
        form.scope = KeyScope(request.user)
        return form

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return False

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        project = KeyScope(request.user).projects().order_by("id").first()
        return {"project": project and project.pk, **super().get_changeform_initial_data(request)}

    @display(description=gettext_lazy("Key"))
    def show_text(self, key: Any) -> str:
        return f"lc_{key.public_id}_…{key.last4 or ''}"

    @display(description=gettext_lazy("Belongs to"))
    def show_owner(self, key: ApiKey) -> str:
        if key.service_account_id is not None:
            return _("service account %(name)s") % {"name": key.service_account}
        return str(key.owner) if key.owner else _("the project")

    @display(description=gettext_lazy("State"), label=STATE_COLOURS)
    def show_state(self, key: ApiKey) -> Labelled:
        if key.disabled_at:
            state = "disabled"
        elif key.project.archived_at:
            state = "archived"
        else:
            state = "expired" if key.expires_at and key.expires_at <= timezone.now() else "active"
        return Labelled(state, STATES[state])

    show_created = column(gettext_lazy("Created"), "created_at", instant)
    show_last_used = column(gettext_lazy("Last used"), "last_used_at", instant)
    show_expiry = column(gettext_lazy("Expires"), "expires_at", expiry)

    @display(description=gettext_lazy("Secrets"))
    def show_secrets(self, key: ApiKey) -> str:
        secrets = [(f"…{secret.last4}", secret.valid_until) for secret in key.secrets.all()]
        return ", ".join(
            _("%(secret)s until %(end)s") % {"secret": secret, "end": instant(end)}
            if end
            else _("%(secret)s current") % {"secret": secret}
            for secret, end in secrets
        )

    @display(description=gettext_lazy("In force"))
    def show_limits(self, key: ApiKey) -> str:
        """List the tightest of the limits of the key, its owner, its project and its organisation."""
        lines = ((name, number(figure), whose) for name, figure, whose in limits_in_force(key))
        return format_html_join(mark_safe("<br>"), "{}: {} ({})", lines) or _("none")

    def save_model(self, request: HttpRequest, obj: ApiKey, form: ApiKeyForm, change: bool) -> None:
        if change:
            key_update(key=obj, actor=request.user)
            return
        key, text = key_create(**form.cleaned_data)
        obj.pk, obj.public_id = key.pk, key.public_id
        request.new_key_text = text

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        return self._shown_once(request, obj, request.new_key_text, _("Key created"))

    @action(description=gettext_lazy("Rotate"), url_path="rotate", permissions=["change"], icon="autorenew")
    def rotate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = self._changeable_key(request, object_id)
        form = RotateForm(request.POST or None, initial={"overlap_hours": int(DEFAULT_OVERLAP.total_seconds() // 3600)})
        if request.method == "POST" and form.is_valid():
            text = key_rotate(key=key, overlap=form.overlap())
            self.log_change(request, key, "Rotated the secret.")  # stored, and so in English
            return self._shown_once(request, key, text, _("Secret rotated"))
        effect = _("It gets a new secret, which is shown once. Limits, scopes and usage stay with the key.")
        return self._confirm(request, key, _("Rotate"), effect, form)

    @action(
        description=gettext_lazy("Disable"),
        url_path="disable",
        permissions=["change"],
        icon="block",
        variant=ActionVariant.WARNING,
    )
    def disable(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = self._changeable_key(request, object_id)
        if request.method != "POST":
            effect = _(
                "Requests with it are answered 401 from now on, until it is enabled again. "
                "Running requests end normally."
            )
            return self._confirm(request, key, _("Disable"), effect)
        return self._switch(request, key, key_disable, _("The key “%(key)s” is disabled."), "Disabled.")

    @action(description=gettext_lazy("Enable"), url_path="enable", permissions=["change"], icon="check_circle")
    def enable(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = self._changeable_key(request, object_id)
        if request.method != "POST":
            return self._confirm(request, key, _("Enable"), _("Requests with it are served again."))
        return self._switch(request, key, key_enable, _("The key “%(key)s” is enabled."), "Enabled.")

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the allowed actions, and of disable and enable the one that applies."""
        key = self.get_object(request, unquote(str(object_id)))
        if key is None or not self.has_change_permission(request, key):
            return []
        unfit = "disable" if key.disabled_at else "enable"
        return [
            act for act in super().get_actions_detail(request, object_id) if not act.action_name.endswith(f"_{unfit}")
        ]

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        key = self._key(request, object_id)
        if not self.has_delete_permission(request, key):
            raise PermissionDenied
        form = DeleteForm(request.POST or None, expected=key.name)
        if request.method == "POST" and form.is_valid():
            key_delete(key=key)
            self.log_deletions(request, [key])
            self.message_user(request, _("The key “%(key)s” is deleted.") % {"key": key.name})
            return redirect("admin:chat_apikey_changelist")
        effect = _("It stops working at once and for ever. Its name, usage and request logs stay.")
        return self._confirm(request, key, _("Delete"), effect, form, is_dangerous=True)

    def _key(self, request: HttpRequest, object_id: str) -> ApiKey:
        key = self.get_object(request, unquote(object_id))
        if key is None:
            raise Http404(_("There is no such key."))
        return key

    def _changeable_key(self, request: HttpRequest, object_id: str) -> ApiKey:
        key = self._key(request, object_id)
        if not self.has_change_permission(request, key):
            raise PermissionDenied
        return key

    def _switch(
        self, request: HttpRequest, key: ApiKey, switch: Callable[..., None], done: str, stored: str
    ) -> HttpResponse:
        """Disable or enable a key. `stored`: what the history of the key says, in English."""
        try:
            switch(key=key)
        except ValidationError as error:
            self.message_user(request, " ".join(error.messages), messages.ERROR)
        else:
            self.log_change(request, key, stored)
            self.message_user(request, done % {"key": key.name})
        return redirect("admin:chat_apikey_change", key.pk)

    def _confirm(
        self,
        request: HttpRequest,
        key: ApiKey,
        act: str,
        effect: str,
        form: forms.Form | None = None,
        *,
        is_dangerous: bool = False,
    ) -> HttpResponse:
        title = _("%(act)s API key") % {"act": act}
        context = {"title": title, "key": key, "act": act, "effect": effect, "form": form, "is_dangerous": is_dangerous}
        return act_page(request, "admin/chat/apikey/confirm.html", context)

    def _shown_once(self, request: HttpRequest, key: ApiKey, text: str, title: str) -> HttpResponse:
        back = reverse("admin:chat_apikey_changelist")
        context = {"title": title, "key": key, "key_text": text, "back": back}
        return shown_once_page(request, "admin/chat/apikey/shown_once.html", context)
