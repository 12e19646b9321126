"""Console pages of jobs on stored models: start a pull, an import, a check or a copy, follow and cancel it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from unfold.decorators import action, display
from unfold.enums import ActionVariant

from chat.console.acts import confirm_page
from chat.console.pages import ReadOnlyNewestFirst, column, instant
from chat.model_jobs.models import ModelJob
from chat.model_jobs.services import job_cancel, job_check, job_create
from chat.model_store.errors import StoreError

COLUMNS = ("show_asked", "kind", "show_state", "show_progress", "show_message", "show_created")


class ModelJobForm(forms.ModelForm):
    """The form that starts a job."""

    class Meta:
        model = ModelJob
        fields = ("kind", "asked", "revision", "name")
        labels = {"asked": "Model", "name": "Store it as"}
        help_texts = {
            "kind": "Pull from the Hugging Face hub, import from this machine, compare a stored model's files with "
            "their hashes, or offer a stored model under another name with settings of its own.",
            "asked": "Pull: OWNER/NAME or OWNER/NAME:FORMAT, such as bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M. "
            "Without a format the one that suits this machine is taken. Import: a GGUF file, a folder, a cache of "
            "Hugging Face or a folder of Ollama. Check and copy: the name of a stored model.",
            "revision": "Of a pull: a branch, tag or commit. Empty: main.",
            "name": "Empty: after the repository or file. A copy needs one.",
        }

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        try:
            if cleaned.get("asked") and cleaned.get("kind"):
                wanted = {field: cleaned.get(field) or "" for field in ("kind", "asked", "name")}
                job_check(**wanted)
        except StoreError as error:
            raise ValidationError(str(error)) from error
        return cleaned


@admin.register(ModelJob)
class ModelJobAdmin(ReadOnlyNewestFirst):
    form = ModelJobForm
    list_display = COLUMNS
    list_before_template = "admin/live.html"
    search_fields = ("public_id",)
    search_help_text = "Job id: exact"
    actions_detail = ("cancel",)
    fields = (
        "public_id",
        "show_asked",
        "kind",
        "revision",
        "name",
        "show_state",
        "show_progress",
        "message",
        "asked_by",
    )
    add_fieldsets = ((None, {"fields": ("kind", "asked", "revision", "name")}),)

    def get_fieldsets(self, request: HttpRequest, obj: ModelJob | None = None) -> Any:
        return self.add_fieldsets if obj is None else super().get_fieldsets(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: ModelJob | None = None) -> Any:
        return () if obj is None else self.fields

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("chat.add_modeljob"))

    def has_cancel_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return bool(request.user.has_perm("chat.change_modeljob"))

    def save_model(self, request: HttpRequest, obj: ModelJob, form: Any, change: bool) -> None:
        """Create the job by the service, which gives it its id."""
        made = job_create(
            kind=obj.kind,
            asked=obj.asked,
            revision=obj.revision,
            name=obj.name,
            asked_by=request.user.get_username(),
        )
        obj.pk, obj.public_id = made.pk, made.public_id

    def response_add(self, request: HttpRequest, obj: ModelJob, post_url_continue: str | None = None) -> HttpResponse:
        self.message_user(request, f"{obj} begins within a second.")
        return redirect("admin:chat_modeljob_changelist")

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the cancel action while the job is open."""
        job = self.get_object(request, unquote(str(object_id)))
        return super().get_actions_detail(request, object_id) if job is not None and job.is_open else []

    @action(
        description="Cancel", url_path="cancel", permissions=["cancel"], icon="block", variant=ActionVariant.WARNING
    )
    def cancel(self, request: HttpRequest, object_id: str) -> HttpResponse:
        job = self.get_object(request, unquote(object_id))
        if job is None:
            raise Http404("There is no such job.")
        if not self.has_cancel_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return confirm_page(
                request,
                act="Cancel",
                subject=f"{job.get_kind_display().lower()} of {job.asked}",
                effect="What a pull has fetched is kept: pulling the same again goes on from there.",
                back=reverse("admin:chat_modeljob_changelist"),
            )
        if job_cancel(job=job).is_open or job.ended_at:
            self.log_change(request, job, "Cancelled.")
            self.message_user(request, f"{job} is being cancelled.", messages.INFO)
        return redirect("admin:chat_modeljob_changelist")

    @display(
        description="State",
        label={
            "Waiting": "info",
            "Running": "info",
            "Cancelling": "warning",
            "Done": "success",
            "Failed": "danger",
            "Cancelled": "warning",
        },
    )
    def show_state(self, job: ModelJob) -> str:
        return job.get_state_display()

    @display(description="Progress")
    def show_progress(self, job: ModelJob) -> str:
        if not job.num_bytes:
            return job.phase or "–"
        if not job.is_open or job.phase != "fetching":
            return f"{filesizeformat(job.num_bytes)} {job.phase}".strip()
        left_s = (job.num_bytes - job.num_done) / job.rate if job.rate else 0
        left = f", {left_s / 60:.0f} min left" if left_s >= 90 else f", {left_s:.0f} s left" if left_s else ""
        return format_html(
            '<progress max="100" value="{}"></progress> {}',
            round(100 * job.num_done / job.num_bytes),
            f"{job.num_done / job.num_bytes:.0%} of {filesizeformat(job.num_bytes)}, "
            f"{filesizeformat(job.rate)}/s{left}",
        )

    show_asked = column("Model", "asked", str)
    show_message = column("What", "message", str)
    show_created = column("Created", "created_at", instant)
