"""Console pages of organisations and projects."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from chat.access.admin.key_forms import model_choices
from chat.access.admin.limit_fields import LIMITS, LimitFields
from chat.access.admin.scoped import ScopedPage
from chat.access.configuration import configuration_touch
from chat.access.keys import keys_settle
from chat.access.limit_columns import LIMIT_COLUMNS
from chat.access.models import Org, Project
from chat.access.people import people_seen
from chat.access.policy import may, orgs_reached
from chat.access.roles import Act, Reach
from chat.access.subjects import org_subject, project_subject
from chat.audit.pages import AuditedRows
from chat.audit.services import Subject
from chat.console.fresh_form import FreshForm, FreshPage


class OrgForm(FreshForm, LimitFields):
    class Meta:
        model = Org
        fields = ("name", *LIMIT_COLUMNS)


@admin.register(Org)
class OrgAdmin(FreshPage, AuditedRows, ScopedPage):
    audit_kind = "org"
    see, manage, org_column, project_column = Act.PROJECTS_SEE, Act.ORG_CHANGE, "pk", "projects"
    list_display = ("name", "show_projects", "created_at")
    search_fields = ("name",)
    form = OrgForm
    fieldsets = ((None, {"fields": ("name",)}), LIMITS)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Org]:
        return super().get_queryset(request).annotate(num_projects=Count("projects")).order_by("name")

    def audit_subject(self, row: Org) -> Subject:
        return org_subject(row)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse to delete the organisation whose roles hold for the installation."""
        return super().has_delete_permission(request, obj) and not (isinstance(obj, Org) and obj.is_operator)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        configuration_touch()

    @display(description="Projects")
    def show_projects(self, org: Any) -> int:
        return org.num_projects


class ProjectForm(FreshForm, LimitFields):
    model_names = forms.MultipleChoiceField(
        label=_("Allowed models"),
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=_("For its keys, and the chats that count to it. None ticked: every model, also later ones."),
    )

    class Meta:
        model = Project
        fields = ("org", "name", "members", "may_share", "model_names", *LIMIT_COLUMNS)
        help_texts = {
            "may_share": "People whose chats count to this project may make links that show a chat without an account. "
            "Off: links that there are show nothing.",
            "members": "People of the organisation who make keys of their own here. "
            "Admins and owners reach every project.",
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "model_names" in self.fields:
            self.fields["model_names"].choices = model_choices(self.instance.model_names)

    def clean(self) -> dict[str, Any]:
        """Refuse people of other organisations."""
        cleaned: dict[str, Any] = super().clean()
        org = cleaned.get("org") or getattr(self.instance, "org", None)
        if org is not None and (people := cleaned.get("members")) is not None:
            others = people.exclude(memberships__org=org)
            for name in others.values_list("username", flat=True)[:10]:
                self.add_error("members", f"{name} is no member of {org}. Add them under Members first.")
        return cleaned


@admin.register(Project)
class ProjectAdmin(FreshPage, AuditedRows, ScopedPage):
    audit_kind = "project"
    see, manage, project_column = Act.PROJECTS_SEE, Act.PROJECTS_MANAGE, "pk"
    list_display = ("name", "org", "created_at")
    list_select_related = ("org",)
    search_fields = ("name",)
    form = ProjectForm
    autocomplete_fields = ("members",)

    def get_fieldsets(self, request: HttpRequest, obj: Project | None = None) -> Any:
        """Return the fields, with the members for those who see the people of the organisation."""
        sees_people = obj is None or may(request.user, Act.PEOPLE_SEE, org_id=obj.org_id, least=Reach.ORG)
        named = ("org", "name", *(("members",) if sees_people else ()), "may_share", "model_names")
        return self.with_fresh(request, obj, ((None, {"fields": named}), LIMITS))

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        """Return the organisation of an existing project: its keys, chats and usage belong there."""
        return ("org",) if obj else ()

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        if db_field.name == "org":
            options["queryset"] = orgs_reached(request.user, Act.PROJECTS_MANAGE)
        return super().formfield_for_foreignkey(db_field, request, **options)

    def audit_subject(self, row: Project) -> Subject:
        return project_subject(row)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        if db_field.name == "members":
            options["queryset"] = people_seen(actor=request.user, people=User.objects.all())
        return super().formfield_for_manytomany(db_field, request, **options)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Disable the keys of people who are no longer members."""
        project: Project = form.instance
        before = set(project.members.all()) if change else set()
        super().save_related(request, form, formsets, change)
        for gone in before - set(project.members.all()):
            keys_settle(owner=gone)
        configuration_touch()
