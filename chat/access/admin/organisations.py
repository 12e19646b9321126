"""Console pages of organisations and projects."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.decorators import display

from chat.access.configuration import configuration_touch
from chat.access.models import Org, Project


@admin.register(Org)
class OrgAdmin(ModelAdmin):
    list_display = ("name", "show_projects", "created_at")
    search_fields = ("name",)
    fields = ("name",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Org]:
        return super().get_queryset(request).annotate(num_projects=Count("projects"))

    @display(description="Projects")
    def show_projects(self, org: Any) -> int:
        return org.num_projects


@admin.register(Project)
class ProjectAdmin(ModelAdmin):
    list_display = ("name", "org", "created_at")
    list_select_related = ("org",)
    search_fields = ("name",)
    autocomplete_fields = ("org", "members")
    fields = ("org", "name", "members")

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        """Return `members` as read-only except for superusers, as members may create keys in the project."""
        return () if request.user.is_superuser else ("members",)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        field = super().formfield_for_manytomany(db_field, request, **options)
        if field is not None and db_field.name == "members":
            field.help_text = (
                "People who make and change its API keys, as far as their permissions go. "
                "Superusers may in every project."
            )
        return field

    def save_model(self, request: HttpRequest, obj: Project, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        configuration_touch()
