"""Console pages of batches, with a button to cancel one, and of files, without contents.

A file may be deleted unless an open batch reads it.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import action, display
from unfold.enums import ActionVariant

from chat.access.admin.scoped import ScopedPage
from chat.access.key_scope import of_own_keys
from chat.access.roles import Act
from chat.batches.files import FileInUse, FileMissing, file_delete
from chat.batches.models import Batch, BatchStatus, ProjectFile, Purpose
from chat.batches.services import STOPPABLE_STATUSES, BatchOver, batch_cancel
from chat.console.figures import number
from chat.console.pages import Labelled, ReadOnlyNewestFirst, column, expiry, instant
from chat.usage.column_filters import ColumnFilter, KeyFilter, ProjectFilter

TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
COLUMNS = ("public_id", "show_status", "show_progress", "endpoint", "model", "project", "key_public_id")
STATUSES = {
    BatchStatus.VALIDATING: gettext_lazy("Validating"),
    BatchStatus.IN_PROGRESS: gettext_lazy("In progress"),
    BatchStatus.FINALIZING: gettext_lazy("Finalizing"),
    BatchStatus.CANCELLING: gettext_lazy("Cancelling"),
    BatchStatus.COMPLETED: gettext_lazy("Completed"),
    BatchStatus.FAILED: gettext_lazy("Failed"),
    BatchStatus.EXPIRED: gettext_lazy("Expired"),
    BatchStatus.CANCELLED: gettext_lazy("Cancelled"),
}
PURPOSES = {
    Purpose.BATCH: gettext_lazy("Batch"),
    Purpose.USER_DATA: gettext_lazy("User data"),
    Purpose.ASSISTANTS: gettext_lazy("Assistants"),
    Purpose.VISION: gettext_lazy("Vision"),
    Purpose.BATCH_OUTPUT: gettext_lazy("Batch output"),
}


class BatchStatusFilter(ColumnFilter):
    title = gettext_lazy("status")
    parameter_name = column = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(str(status), name) for status, name in STATUSES.items()]


@admin.register(Batch)
class BatchAdmin(ReadOnlyNewestFirst, ScopedPage):
    see, manage, org_column = Act.BATCHES_SEE, Act.BATCHES_MANAGE, "project__org_id"
    list_display = (*COLUMNS, "show_created")
    list_filter = (BatchStatusFilter, KeyFilter, ProjectFilter)
    list_select_related = ("project__org",)
    search_fields = ("public_id",)
    search_help_text = gettext_lazy("Batch id: exact")
    actions_detail = ("cancel",)
    fieldsets = (
        (None, {"fields": (*COLUMNS, "metadata")}),
        (gettext_lazy("Files"), {"fields": ("input_file_id", "output_file_id", "error_file_id")}),
        (
            gettext_lazy("Tokens"),
            {"fields": ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")},
        ),
        (gettext_lazy("Time"), {"fields": ("show_created", "show_begun", "show_ended", "show_expiry")}),
        (gettext_lazy("What went wrong"), {"fields": ("show_errors",)}),
    )

    def own_rows(self, request: HttpRequest) -> Q:
        return of_own_keys(request.user)

    def has_cancel_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return bool(request.user.has_perm("chat.change_batch")) and self.reaches(request, object_id)

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the cancel action while the batch can be cancelled."""
        batch = self.get_object(request, unquote(str(object_id)))
        is_stoppable = batch is not None and batch.status in STOPPABLE_STATUSES
        return super().get_actions_detail(request, object_id) if is_stoppable else []

    @action(
        description=gettext_lazy("Cancel"),
        url_path="cancel",
        permissions=["cancel"],
        icon="block",
        variant=ActionVariant.WARNING,
    )
    def cancel(self, request: HttpRequest, object_id: str) -> HttpResponse:
        batch = self.get_object(request, unquote(object_id))
        if batch is None:
            raise Http404("There is no such batch.")
        if not self.has_cancel_permission(request, batch):
            raise PermissionDenied
        if request.method != "POST":
            context = self.admin_site.each_context(request) | {
                "opts": self.opts,
                "is_popup": False,
                "title": _("Cancel batch"),
                "batch": batch,
            }
            return TemplateResponse(request, "admin/chat/batch/cancel.html", context)
        try:
            batch_cancel(batch=batch)
            self.log_change(request, batch, "Cancelled.")
            self.message_user(request, _("The batch %(batch)s is being cancelled.") % {"batch": batch.public_id})
        except BatchOver:
            batch.refresh_from_db()
            values = {"batch": batch.public_id, "status": STATUSES[batch.status]}
            said = _("The batch %(batch)s cannot be cancelled any more: %(status)s.") % values
            self.message_user(request, said, messages.WARNING)
        return redirect("admin:chat_batch_change", batch.pk)

    @display(
        description=gettext_lazy("Status"),
        label={
            BatchStatus.VALIDATING: "info",
            BatchStatus.IN_PROGRESS: "info",
            BatchStatus.FINALIZING: "info",
            BatchStatus.CANCELLING: "warning",
            BatchStatus.COMPLETED: "success",
            BatchStatus.FAILED: "danger",
            BatchStatus.EXPIRED: "warning",
            BatchStatus.CANCELLED: "warning",
        },
    )
    def show_status(self, batch: Batch) -> Labelled:
        return Labelled(batch.status, STATUSES[batch.status])

    @display(description=gettext_lazy("Requests"))
    def show_progress(self, batch: Batch) -> str:
        values = {
            "done": number(batch.num_completed),
            "all": number(batch.num_lines),
            "failed": number(batch.num_failed),
        }
        said = _("%(done)s of %(all)s, %(failed)s failed") if batch.num_failed else _("%(done)s of %(all)s")
        return said % values

    show_created = column(gettext_lazy("Created"), "created_at", instant)
    show_begun = column(gettext_lazy("Begun"), "in_progress_at", instant)
    show_expiry = column(gettext_lazy("Time runs out"), "expires_at", instant)

    @display(description=gettext_lazy("Ended"))
    def show_ended(self, batch: Batch) -> str:
        return instant(batch.completed_at or batch.failed_at or batch.expired_at or batch.cancelled_at)

    @display(description=gettext_lazy("Errors"))
    def show_errors(self, batch: Batch) -> str:
        lines = (
            _("line %(line)s: %(message)s") % error if error.get("line") else str(error["message"])
            for error in batch.errors
        )
        return "; ".join(lines) or "–"


class PurposeFilter(ColumnFilter):
    title = gettext_lazy("purpose")
    parameter_name = column = "purpose"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(str(purpose), name) for purpose, name in PURPOSES.items()]

    def value(self) -> str | None:
        value = super().value()
        return value if value in Purpose.values else None


@admin.register(ProjectFile)
class ProjectFileAdmin(ReadOnlyNewestFirst, ScopedPage):
    see, manage, org_column = Act.BATCHES_SEE, Act.BATCHES_MANAGE, "project__org_id"
    list_display = ("public_id", "filename", "show_purpose", "show_size", "project", "show_created", "show_expiry")
    list_filter = (PurposeFilter, KeyFilter, ProjectFilter)
    list_select_related = ("project__org",)
    search_fields = ("public_id",)
    search_help_text = gettext_lazy("File id: exact")
    fields = (*list_display, "key_public_id")

    def own_rows(self, request: HttpRequest) -> Q:
        return of_own_keys(request.user)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ProjectFile]:
        return super().get_queryset(request).filter(is_complete=True)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("chat.delete_projectfile")) and self.reaches(request, obj)

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
                self.message_user(request, _("The file “%(file)s” is deleted.") % {"file": file.filename})
        except FileInUse as error:
            message = _("The file is the input of %(batch)s; cancel that batch first.") % {"batch": error.batch_id}
            self.message_user(request, message, messages.ERROR)
        except FileMissing:
            self.message_user(request, _("The file has expired."), messages.WARNING)
        return redirect("admin:chat_projectfile_changelist")

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Leave out the chunks, which need no permission of their own."""
        return [str(file) for file in objs], {_("files"): len(objs)}, set(), []

    show_purpose = column(gettext_lazy("Purpose"), "purpose", lambda purpose: str(PURPOSES[purpose]))
    show_size = column(gettext_lazy("Size"), "num_bytes", filesizeformat)
    show_created = column(gettext_lazy("Created"), "created_at", instant)
    show_expiry = column(gettext_lazy("Expires"), "expires_at", expiry)
