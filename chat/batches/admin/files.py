"""Console pages of files: names and sizes, without contents. A file may be deleted unless an open batch reads it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import display

from chat.batches.files import FileInUse, FileMissing, file_delete
from chat.batches.models import ProjectFile, Purpose
from chat.console.fields import instant
from chat.console.newest_first import ReadOnlyNewestFirst
from chat.usage.admin.request_log import KeyFilter, ProjectFilter


class PurposeFilter(DropdownFilter):
    title = "purpose"
    parameter_name = "purpose"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(Purpose.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[ProjectFile]) -> QuerySet[ProjectFile]:
        return queryset.filter(purpose=self.value()) if self.value() in Purpose.values else queryset


@admin.register(ProjectFile)
class ProjectFileAdmin(ReadOnlyNewestFirst):
    list_display = ("public_id", "filename", "purpose", "show_size", "project", "show_created", "show_expiry")
    list_filter = (PurposeFilter, KeyFilter, ProjectFilter)
    list_select_related = ("project__org",)
    search_fields = ("public_id",)
    search_help_text = "File id: exact"
    fields = (
        "public_id",
        "filename",
        "purpose",
        "show_size",
        "project",
        "key_public_id",
        "show_created",
        "show_expiry",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[ProjectFile]:
        return super().get_queryset(request).filter(is_complete=True)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet, search_term: str) -> tuple[QuerySet, bool]:
        term = search_term.strip()
        return (queryset.filter(public_id=term) if term and "\0" not in term else queryset), False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("chat.delete_projectfile")

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Confirm as Django does, and delete by the service."""
        if request.method != "POST":
            return super().delete_view(request, object_id, extra_context)
        file = self.get_object(request, object_id)
        if not self.has_delete_permission(request, file):
            raise PermissionDenied
        try:
            if file is not None:
                file_delete(project_id=file.project_id, public_id=file.public_id)
                self.log_deletions(request, [file])
                self.message_user(request, f"The file “{file.filename}” is deleted.")
        except FileInUse as error:
            self.message_user(request, f"The file is the input of {error}; cancel that batch first.", messages.ERROR)
        except FileMissing:
            self.message_user(request, "The file has expired.", messages.WARNING)
        return redirect("admin:chat_projectfile_changelist")

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Leave out the chunks, which need no permission of their own."""
        return [str(file) for file in objs], {"files": len(objs)}, set(), []

    @display(description="Size")
    def show_size(self, file: ProjectFile) -> str:
        return filesizeformat(file.num_bytes)

    @display(description="Created")
    def show_created(self, file: ProjectFile) -> str:
        return instant(file.created_at)

    @display(description="Expires")
    def show_expiry(self, file: ProjectFile) -> str:
        return instant(file.expires_at) if file.expires_at else "never"
