"""Console pages of files: names and sizes, without contents. A file may be deleted unless an open batch reads it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat

from chat.batches.files import FileInUse, FileMissing, file_delete
from chat.batches.models import ProjectFile, Purpose
from chat.console.fields import column, expiry, instant
from chat.console.newest_first import ReadOnlyNewestFirst
from chat.usage.admin.request_log import ColumnFilter, KeyFilter, ProjectFilter


class PurposeFilter(ColumnFilter):
    title = "purpose"
    parameter_name = column = "purpose"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(Purpose.choices)

    def value(self) -> str | None:
        value = super().value()
        return value if value in Purpose.values else None


@admin.register(ProjectFile)
class ProjectFileAdmin(ReadOnlyNewestFirst):
    list_display = ("public_id", "filename", "purpose", "show_size", "project", "show_created", "show_expiry")
    list_filter = (PurposeFilter, KeyFilter, ProjectFilter)
    list_select_related = ("project__org",)
    search_fields = ("public_id",)
    search_help_text = "File id: exact"
    fields = (*list_display, "key_public_id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ProjectFile]:
        return super().get_queryset(request).filter(is_complete=True)

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
            message = f"The file is the input of {error.batch_id}; cancel that batch first."
            self.message_user(request, message, messages.ERROR)
        except FileMissing:
            self.message_user(request, "The file has expired.", messages.WARNING)
        return redirect("admin:chat_projectfile_changelist")

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Leave out the chunks, which need no permission of their own."""
        return [str(file) for file in objs], {"files": len(objs)}, set(), []

    show_size = column("Size", "num_bytes", filesizeformat)
    show_created = column("Created", "created_at", instant)
    show_expiry = column("Expires", "expires_at", expiry)
