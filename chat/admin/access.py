"""Organisations and projects."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.decorators import display

from chat import selectors
from chat.configuration import configuration_touch
from chat.models import Org, Project


@admin.register(Org)
class OrgAdmin(ModelAdmin):
    list_display = ("name", "show_projects", "created_at")
    search_fields = ("name",)
    fields = ("name",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Org]:
        return selectors.orgs_counted()

    @display(description="Projects")
    def show_projects(self, org: Any) -> int:
        return org.num_projects


@admin.register(Project)
class ProjectAdmin(ModelAdmin):
    list_display = ("name", "org", "created_at")
    list_select_related = ("org",)
    search_fields = ("name",)
    autocomplete_fields = ("org",)
    fields = ("org", "name")

    def save_model(self, request: HttpRequest, obj: Project, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        configuration_touch()
