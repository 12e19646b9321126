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
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import action, display
from unfold.enums import ActionVariant

from chat.console.acts import confirm_page
from chat.console.figures import percent
from chat.console.pages import Labelled, ReadOnlyNewestFirst, column, instant
from chat.model_jobs.models import JobKind, JobState, ModelJob
from chat.model_jobs.services import job_cancel, job_check, job_create
from chat.model_store.errors import StoreError

COLUMNS = ("show_asked", "show_kind", "show_state", "show_progress", "show_message", "show_created")
KINDS = {
    JobKind.PULL: gettext_lazy("Pull"),
    JobKind.IMPORT: gettext_lazy("Import"),
    JobKind.CHECK: gettext_lazy("Check"),
    JobKind.COPY: gettext_lazy("Copy"),
}
STATES = {
    JobState.WAITING: gettext_lazy("Waiting"),
    JobState.RUNNING: gettext_lazy("Running"),
    JobState.CANCELLING: gettext_lazy("Cancelling"),
    JobState.DONE: gettext_lazy("Done"),
    JobState.FAILED: gettext_lazy("Failed"),
    JobState.CANCELLED: gettext_lazy("Cancelled"),
}
PHASES = {
    "fetching": gettext_lazy("fetching"),
    "checking": gettext_lazy("checking"),
    "describing": gettext_lazy("describing"),
    "comparing hashes": gettext_lazy("comparing hashes"),
    "copying": gettext_lazy("copying"),
}
"""What a job does at the time, as its process says it. That of an import names the model too."""


class ModelJobForm(forms.ModelForm):
    """The form that starts a job."""

    class Meta:
        model = ModelJob
        fields = ("kind", "asked", "revision", "name")
        labels = {"asked": gettext_lazy("Model"), "name": gettext_lazy("Store it as")}
        help_texts = {
            "kind": gettext_lazy(
                "Pull from the Hugging Face hub, import from this machine, compare a stored model's files with "
                "their hashes, or offer a stored model under another name with settings of its own."
            ),
            "asked": gettext_lazy(
                "Pull: OWNER/NAME or OWNER/NAME:FORMAT, such as bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M. "
                "Without a format the one that suits this machine is taken. Import: a GGUF file, a folder, a cache of "
                "Hugging Face or a folder of Ollama. Check and copy: the name of a stored model."
            ),
            "revision": gettext_lazy("Of a pull: a branch, tag or commit. Empty: main."),
            "name": gettext_lazy("Empty: after the repository or file. A copy needs one."),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "kind" in self.fields:
            self.fields["kind"].choices = [(kind, KINDS.get(kind, name)) for kind, name in self.fields["kind"].choices]

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
    search_help_text = gettext_lazy("Job id: exact")
    actions_detail = ("cancel",)
    fields = (
        "public_id",
        "show_asked",
        "show_kind",
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
        self.message_user(request, _("%(job)s begins within a second.") % {"job": _named(obj)})
        return redirect("admin:chat_modeljob_changelist")

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the cancel action while the job is open."""
        job = self.get_object(request, unquote(str(object_id)))
        return super().get_actions_detail(request, object_id) if job is not None and job.is_open else []

    @action(
        description=gettext_lazy("Cancel"),
        url_path="cancel",
        permissions=["cancel"],
        icon="block",
        variant=ActionVariant.WARNING,
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
                act=_("Cancel"),
                subject=_("the job “%(job)s”") % {"job": _named(job)},
                effect=_("What a pull has fetched is kept: pulling the same again goes on from there."),
                back=reverse("admin:chat_modeljob_changelist"),
            )
        if job_cancel(job=job).is_open or job.ended_at:
            self.log_change(request, job, "Cancelled.")
            self.message_user(request, _("%(job)s is being cancelled.") % {"job": _named(job)}, messages.INFO)
        return redirect("admin:chat_modeljob_changelist")

    @display(
        description=gettext_lazy("State"),
        label={
            JobState.WAITING: "info",
            JobState.RUNNING: "info",
            JobState.CANCELLING: "warning",
            JobState.DONE: "success",
            JobState.FAILED: "danger",
            JobState.CANCELLED: "warning",
        },
    )
    def show_state(self, job: ModelJob) -> Labelled:
        return Labelled(job.state, STATES[job.state])

    @display(description=gettext_lazy("Kind"))
    def show_kind(self, job: ModelJob) -> str:
        return str(KINDS[job.kind])

    @display(description=gettext_lazy("Progress"))
    def show_progress(self, job: ModelJob) -> str:
        if not job.num_bytes:
            return _phase(job) or "–"
        if not job.is_open or job.phase != "fetching":
            return f"{filesizeformat(job.num_bytes)} {_phase(job)}".strip()
        left_s = (job.num_bytes - job.num_done) / job.rate if job.rate else 0
        values = {
            "share": percent(job.num_done / job.num_bytes),
            "size": filesizeformat(job.num_bytes),
            "rate": filesizeformat(job.rate),
            "left": f"{left_s / 60:.0f} min" if left_s >= 90 else f"{left_s:.0f} s",
        }
        said = (
            _("%(share)s of %(size)s, %(rate)s/s, %(left)s left") if left_s else _("%(share)s of %(size)s, %(rate)s/s")
        )
        return format_html(
            '<progress max="100" value="{}"></progress> {}',
            round(100 * job.num_done / job.num_bytes),
            said % values,
        )

    show_asked = column(gettext_lazy("Model"), "asked", str)
    show_message = column(gettext_lazy("What"), "message", str)
    show_created = column(gettext_lazy("Created"), "created_at", instant)


def _phase(job: ModelJob) -> str:
    act, _space, model = job.phase.partition(" ")
    if act == "importing":
        return _("importing %(model)s") % {"model": model}
    return str(PHASES.get(job.phase, job.phase))


def _named(job: ModelJob) -> str:
    """Name a job by its kind and what it is of."""
    return f"{KINDS[job.kind]} {job.asked}"
