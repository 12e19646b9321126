"""Console pages of admin keys: make one, which is shown once, and revoke it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.widgets import UnfoldAdminSelectWidget

from chat.access.admin.scoped import ScopedPage
from chat.access.admin_keys import admin_key_create, admin_key_revoke
from chat.access.models import AdminKey
from chat.access.policy import may, orgs_reached
from chat.access.roles import Act, Reach
from chat.console.acts import confirm_page, shown_once_page
from chat.console.pages import Labelled, LinesField, column, expiry, instant


class AdminKeyForm(forms.ModelForm):
    """A new key, of an organisation in which the user makes them."""

    actor: Any

    networks = LinesField(
        label=gettext_lazy("Allowed networks"),
        help_text=gettext_lazy("Addresses or ranges such as 10.0.0.0/8, one a line. Empty: everywhere."),
    )

    class Meta:
        model = AdminKey
        fields = ("name", "org", "networks", "expires_at")
        widgets = {"org": UnfoldAdminSelectWidget}
        help_texts = {
            "name": gettext_lazy("What it is for. The audit log names it, and you."),
            "expires_at": gettext_lazy("UTC. Empty: never."),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "org" in self.fields:
            orgs = orgs_reached(self.actor, Act.ADMIN_KEYS_MANAGE)
            self.fields["org"].queryset = orgs
            self.fields["org"].initial = orgs.order_by("id").first()
            self.fields["org"].help_text = _(
                "The key may there what you may at the time, over /v1/organization. It ends with your role."
            )

    def clean_expires_at(self) -> Any:
        expires_at = self.cleaned_data["expires_at"]
        if expires_at is not None and expires_at <= timezone.now():
            raise forms.ValidationError(_("The expiry must be in the future."))
        return expires_at


@admin.register(AdminKey)
class AdminKeyAdmin(ScopedPage):
    only_saves = True
    see, manage = Act.ADMIN_KEYS_SEE, Act.ADMIN_KEYS_MANAGE
    form = AdminKeyForm
    list_display = ("name", "show_text", "org", "owner", "show_state", "show_last_used", "show_expiry")
    list_select_related = ("org", "owner")
    search_fields = ("name", "public_id")
    list_per_page = 50
    show_full_result_count = False
    sortable_by = ()
    actions = None
    actions_detail = ("revoke",)
    add_fields = ("name", "org", "networks", "expires_at")
    shown_fields = (
        *("name", "show_text", "org", "owner", "show_state", "networks"),
        *("show_created", "show_last_used", "show_expiry"),
    )

    show_created = column(gettext_lazy("Created"), "created_at", instant)
    show_last_used = column(gettext_lazy("Last used"), "last_used_at", instant)
    show_expiry = column(gettext_lazy("Expires"), "expires_at", expiry)

    @display(description=gettext_lazy("Key"))
    def show_text(self, key: AdminKey) -> str:
        return key.shown

    @display(description=gettext_lazy("State"), label={"active": "success", "revoked": "warning", "expired": "danger"})
    def show_state(self, key: AdminKey) -> Labelled:
        if key.revoked_at:
            return Labelled("revoked", _("Revoked"))
        is_over = key.expires_at is not None and key.expires_at <= timezone.now()
        return Labelled("expired", _("Expired")) if is_over else Labelled("active", _("Active"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[AdminKey]:
        return super().get_queryset(request).select_related("org", "owner")

    def get_fields(self, request: HttpRequest, obj: AdminKey | None = None) -> tuple[str, ...]:
        return self.add_fields if obj is None else self.shown_fields

    def get_form(self, request: HttpRequest, obj: AdminKey | None = None, change: bool = False, **options: Any) -> Any:
        if obj is None:
            options["fields"] = self.add_fields
        form = super().get_form(request, obj, change, **options)
        form.actor = request.user
        return form

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_revoke_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Require the act in the key's organisation. django-unfold asks with an id, or without for the list."""
        if object_id is None:
            return may(request.user, Act.ADMIN_KEYS_MANAGE, least=Reach.ORG)
        return self.reaches(request, object_id)

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the revocation of a key that is not revoked."""
        key = self.get_object(request, unquote(str(object_id)))
        is_open = key is not None and key.revoked_at is None and self.reaches(request, key)
        return super().get_actions_detail(request, object_id) if is_open else []

    def save_model(self, request: HttpRequest, obj: AdminKey, form: Any, change: bool) -> None:
        key, text = admin_key_create(actor=request.user, **form.cleaned_data)
        obj.pk, obj.public_id = key.pk, key.public_id
        request.new_key_text = text

    def response_add(self, request: HttpRequest, obj: AdminKey, post_url_continue: str | None = None) -> HttpResponse:
        back = reverse("admin:chat_adminkey_changelist")
        context = {"title": _("Admin key made"), "key": obj, "key_text": request.new_key_text, "back": back}
        return shown_once_page(request, "admin/chat/apikey/shown_once.html", context)

    @action(
        description=gettext_lazy("Revoke"),
        url_path="revoke",
        permissions=["revoke"],
        icon="block",
        variant=ActionVariant.WARNING,
    )
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = self.get_object(request, unquote(object_id))
        if key is None:
            raise Http404(_("There is no such key."))
        if not self.reaches(request, key):
            raise PermissionDenied
        if request.method != "POST":
            return confirm_page(
                request,
                act=_("Revoke"),
                subject=_("the admin key %(key)s") % {"key": key},
                effect=_("Requests with it are answered 401 from now on, for good. Make a new one instead."),
                back=reverse("admin:chat_adminkey_changelist"),
                is_dangerous=True,
            )
        admin_key_revoke(key=key)
        self.message_user(request, _("The admin key %(key)s is revoked.") % {"key": key})
        return redirect("admin:chat_adminkey_changelist")
