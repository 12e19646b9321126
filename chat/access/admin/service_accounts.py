"""Console pages of service accounts: make one with its key, rename it, make another key, delete it."""

from __future__ import annotations

from copy import copy
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import action, display

from chat.access.active_projects import check_active
from chat.access.admin.scoped import ScopedPage
from chat.access.models import ApiKey, Project, ServiceAccount
from chat.access.policy import visible
from chat.access.roles import Act
from chat.access.service_accounts import (
    service_account_create,
    service_account_delete,
    service_account_key_create,
    service_account_rename,
    service_accounts_listed,
)
from chat.console.acts import confirm_page, shown_once_page
from chat.console.fresh_form import FreshForm, FreshPage
from chat.console.pages import column, instant


class ServiceAccountForm(FreshForm):
    class Meta:
        model = ServiceAccount
        fields = ("project", "name")
        help_texts = {"name": gettext_lazy("What usage and the request log call it.")}

    def clean(self) -> dict[str, Any]:
        """Refuse names that are taken, which the form's own check leaves out, and projects that are archived."""
        cleaned: dict[str, Any] = super().clean()
        project, name = cleaned.get("project") or getattr(self.instance, "project", None), cleaned.get("name")
        if project is not None and name:
            try:
                check_active(project)
                account = copy(self.instance)
                account.project, account.name = project, name
                account.validate_constraints()
            except ValidationError as error:
                self.add_error("name", error.messages)
        return cleaned


@admin.register(ServiceAccount)
class ServiceAccountAdmin(FreshPage, ScopedPage):
    only_saves = True
    see, manage, org_column = Act.PROJECTS_SEE, Act.PROJECTS_MANAGE, "project__org_id"
    form = ServiceAccountForm
    list_display = ("name", "project", "show_created")
    list_select_related = ("project__org",)
    search_fields = ("name",)
    list_per_page = 50
    show_full_result_count = False
    sortable_by = ()
    actions = None
    actions_detail = ("new_key",)
    readonly_fields = ("show_created", "show_keys")

    show_created = column(gettext_lazy("Created"), "created_at", instant)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ServiceAccount]:
        return self.reached(request, service_accounts_listed(), self.see)

    def get_fieldsets(self, request: HttpRequest, obj: ServiceAccount | None = None) -> Any:
        shown = ("project", "name", *(self.readonly_fields if obj else ()))
        return self.with_fresh(request, obj, ((None, {"fields": shown}),))

    def get_readonly_fields(self, request: HttpRequest, obj: ServiceAccount | None = None) -> tuple[str, ...]:
        return (*self.readonly_fields, *(("project",) if obj else ()))

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        if db_field.name == "project":
            projects = Project.objects.filter(archived_at=None).select_related("org")
            options["queryset"] = visible(projects, request.user, Act.PROJECTS_MANAGE, project="pk")
        return super().formfield_for_foreignkey(db_field, request, **options)

    @display(description=gettext_lazy("Keys"))
    def show_keys(self, account: ServiceAccount) -> str:
        keys = account.keys.filter(deleted_at=None)
        links = ((reverse("admin:chat_apikey_change", args=[key.pk]), str(key)) for key in keys)
        return format_html_join(mark_safe("<br>"), '<a href="{}">{}</a>', links) or _("none")

    def save_model(self, request: HttpRequest, obj: ServiceAccount, form: Any, change: bool) -> None:
        """Save the name; a new account gets its first key, of the same name."""
        if change:
            service_account_rename(account=obj, name=form.cleaned_data["name"], actor=request.user)
            return
        made = service_account_create(
            project=form.cleaned_data["project"], name=form.cleaned_data["name"], actor=request.user
        )
        obj.pk = made.pk
        request.new_key = service_account_key_create(account=made, name=made.name, actor=request.user)

    def response_add(
        self, request: HttpRequest, obj: ServiceAccount, post_url_continue: str | None = None
    ) -> HttpResponse:
        return self._shown_once(request, obj, request.new_key, _("Service account made"))

    @action(description=gettext_lazy("New key"), url_path="new-key", permissions=["change"], icon="key")
    def new_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        account = self.get_object(request, unquote(object_id))
        if account is None:
            raise Http404(_("There is no such service account."))
        if not self.has_change_permission(request, account):
            raise PermissionDenied
        page = reverse("admin:chat_serviceaccount_change", args=[account.pk])
        if request.method == "POST":
            try:
                key = service_account_key_create(account=account, name=account.name, actor=request.user)
            except ValidationError as error:
                self.message_user(request, " ".join(error.messages), messages.ERROR)
                return redirect(page)
            return self._shown_once(request, account, key, _("Key made"))
        return confirm_page(
            request,
            act=_("Make another key of"),
            subject=account.name,
            effect=_("It is shown once. The keys that there are go on; delete what is not used any more."),
            back=page,
        )

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        account = self.get_object(request, unquote(str(object_id)))
        if account is None or account.project.archived_at or not self.has_change_permission(request, account):
            return []
        return super().get_actions_detail(request, object_id)

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return what is deleted: the account and its keys. Usage and log keep the name."""
        accounts = list(objs)
        keys = [str(key) for one in accounts for key in one.keys.filter(deleted_at=None)]
        counts = {_("service accounts"): len(accounts), _("API keys"): len(keys)}
        return [*(str(one) for one in accounts), *keys], counts, set(), []

    def delete_model(self, request: HttpRequest, obj: ServiceAccount) -> None:
        service_account_delete(account=obj, actor=request.user)

    def _shown_once(
        self, request: HttpRequest, account: ServiceAccount, made: tuple[ApiKey, str], title: str
    ) -> HttpResponse:
        key, text = made
        back = reverse("admin:chat_serviceaccount_change", args=[account.pk])
        context = {"title": title, "key": key, "key_text": text, "back": back}
        return shown_once_page(request, "admin/chat/apikey/shown_once.html", context)
