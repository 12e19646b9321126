"""Console pages of organisations and projects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.apps import apps
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action, display
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextareaWidget,
)

from chat.access.admin.key_forms import model_choices
from chat.access.admin.limit_fields import LIMITS, LimitFields
from chat.access.admin.scoped import ScopedPage
from chat.access.configuration import configuration_touch
from chat.access.keys import keys_settle
from chat.access.limit_columns import LIMIT_COLUMNS
from chat.access.models import MAX_DAYS, Org, Project
from chat.access.people import people_seen
from chat.access.policy import may, orgs_reached
from chat.access.projects import project_archive, project_delete, project_restore
from chat.access.roles import Act, Reach
from chat.access.subjects import org_subject, project_subject
from chat.audit.pages import AuditedRows
from chat.audit.services import Subject
from chat.console.acts import confirm_page
from chat.console.fresh_form import FreshForm, FreshPage
from chat.console.pages import Labelled, LinesField
from chat.redaction import MAX_PATTERNS, Redaction, RedactionTooSlow, pattern_problem

DELETED_WITH_ORG = ("AdminKey", "Invitation", "Alert", "AlertDelivery")
"""Models whose pages delete nothing, by name: alerts stand above this room."""


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

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """Return what goes with organisations; also what no page deletes by itself."""
        listed, counts, needed, protected = super().get_deleted_objects(objs, request)
        own = {str(apps.get_model("chat", name)._meta.verbose_name) for name in DELETED_WITH_ORG}
        return listed, counts, {one for one in needed if str(one) not in own}, protected

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        configuration_touch()

    @display(description=_("Projects"))
    def show_projects(self, org: Any) -> int:
        return org.num_projects


LOG_FIELDS = (
    *("keeps_api_texts", "keeps_chat_texts", "stores_nothing", "redaction_patterns", "log_days", "text_days"),
)
"""What the request log keeps of a project."""


class ProjectForm(FreshForm, LimitFields):
    model_names = forms.MultipleChoiceField(
        label=_("Allowed models"),
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=_("For its keys, and the chats that count to it. None ticked: every model, also later ones."),
    )
    redaction_patterns = LinesField(
        label=_("Own redaction patterns"),
        help_text=_(
            "Regular expressions, one a line, whose matches are replaced before a text is stored. Keys, e-mail "
            "addresses, card and phone numbers are replaced anyway. “Test the redaction” tries them out."
        ),
    )
    text_days = forms.IntegerField(
        label=_("Days that texts are kept"),
        required=False,
        min_value=1,
        max_value=MAX_DAYS,
        initial=7,
        widget=UnfoldAdminIntegerFieldWidget,
    )

    class Meta:
        model = Project
        fields = ("org", "name", "members", "may_share", "model_names", *LOG_FIELDS, *LIMIT_COLUMNS)
        help_texts = {
            "keeps_api_texts": _(
                "The request log keeps prompts and answers of requests with keys of this project, redacted. Owners and "
                "auditors read them, others those of their own keys; the audit log notes each reading."
            ),
            "keeps_chat_texts": _(
                "The same of chats that count to this project. Only where the server lets administrators read chats "
                "(LIGHTCONE_CHAT_ADMIN_READ), which the playground tells people."
            ),
            "stores_nothing": _(
                "The request log keeps no texts, addresses, programs, users' labels, metadata and error messages of "
                "this project, whatever is set above. Tokens, times and costs are counted as ever."
            ),
            "log_days": _(
                "Days that the request log keeps requests. Empty: as the server is set (LIGHTCONE_LOG_DAYS)."
            ),
            "may_share": _(
                "People whose chats count to this project may make links that show a chat without an account. "
                "Off: links that there are show nothing."
            ),
            "members": _(
                "People of the organisation who make keys of their own here. Admins and owners reach every project."
            ),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "model_names" in self.fields:
            self.fields["model_names"].choices = model_choices(self.instance.model_names)

    def clean_redaction_patterns(self) -> list[str]:
        patterns: list[str] = self.cleaned_data["redaction_patterns"]
        if problem := patterns_problem(patterns):
            raise forms.ValidationError(problem)
        return patterns

    def clean_text_days(self) -> int:
        days: int | None = self.cleaned_data["text_days"]
        return self.instance.text_days if days is None else days

    def clean_keeps_chat_texts(self) -> bool:
        keeps: bool = self.cleaned_data["keeps_chat_texts"]
        if keeps and not settings.LIGHTCONE_CHAT_ADMIN_READ:
            raise forms.ValidationError(
                _("Texts of chats are kept only where administrators may read chats: set LIGHTCONE_CHAT_ADMIN_READ.")
            )
        return keeps

    def clean(self) -> dict[str, Any]:
        """Refuse people of other organisations."""
        cleaned: dict[str, Any] = super().clean()
        org = cleaned.get("org") or getattr(self.instance, "org", None)
        if org is not None and (people := cleaned.get("members")) is not None:
            others = people.exclude(memberships__org=org)
            for name in others.values_list("username", flat=True)[:10]:
                refusal = gettext("%(name)s is no member of %(org)s. Add them under Members first.")
                self.add_error("members", refusal % {"name": name, "org": org})
        return cleaned


class RedactionForm(forms.Form):
    """The test box: a text and patterns, which need not be those of the project."""

    text = forms.CharField(label=_("A text"), max_length=20_000, widget=UnfoldAdminTextareaWidget)
    patterns = LinesField(label=_("Own redaction patterns"), help_text=_("One a line. They are only tried here."))

    def clean_patterns(self) -> list[str]:
        patterns: list[str] = self.cleaned_data["patterns"]
        if problem := patterns_problem(patterns):
            raise forms.ValidationError(problem)
        return patterns

    def redacted(self) -> str | None:
        """Return the text as it would be stored; None if the patterns need too long."""
        try:
            return str(Redaction(self.cleaned_data["patterns"]).apply(self.cleaned_data["text"]))
        except RedactionTooSlow:
            return None


def patterns_problem(patterns: list[str]) -> str:
    """Return what is wrong with the patterns of a project, or an empty text."""
    if len(patterns) > MAX_PATTERNS:
        return gettext("%(number)d patterns; at most %(most)d are allowed.") % {
            "number": len(patterns),
            "most": MAX_PATTERNS,
        }
    for number, pattern in enumerate(patterns, 1):
        if problem := pattern_problem(pattern):
            return gettext("Pattern %(number)d cannot be used: %(problem)s.") % {"number": number, "problem": problem}
    return ""


@admin.register(Project)
class ProjectAdmin(FreshPage, AuditedRows, ScopedPage):
    audit_kind = "project"
    see, manage, project_column = Act.PROJECTS_SEE, Act.PROJECTS_MANAGE, "pk"
    list_display = ("name", "org", "show_state", "created_at")
    list_select_related = ("org",)
    search_fields = ("name",)
    form = ProjectForm
    actions_detail = ("redaction", "archive", "restore")
    autocomplete_fields = ("members",)

    def get_fieldsets(self, request: HttpRequest, obj: Project | None = None) -> Any:
        """Return the fields, with the members for those who see the people of the organisation."""
        sees_people = obj is None or may(request.user, Act.PEOPLE_SEE, org_id=obj.org_id, least=Reach.ORG)
        programs = () if obj is None else ("show_service_accounts",)
        named = ("org", "name", *(("members",) if sees_people else ()), *programs, "may_share", "model_names")
        log = (_("Request log"), {"fields": LOG_FIELDS})
        return self.with_fresh(request, obj, ((None, {"fields": named}), LIMITS, log))

    @display(description=_("State"), label={"active": "success", "archived": "warning"})
    def show_state(self, project: Project) -> Labelled:
        return (
            Labelled("archived", gettext("Archived")) if project.archived_at else Labelled("active", gettext("Active"))
        )

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the allowed acts, and of archiving and restoring the one that applies."""
        project = self.get_object(request, unquote(str(object_id)))
        unfit = "archive" if project is None or project.archived_at else "restore"
        acts = super().get_actions_detail(request, object_id)
        return [act for act in acts if not act.action_name.endswith(f"_{unfit}")]

    @action(description=_("Archive"), url_path="archive", permissions=["change"], icon="archive")
    def archive(self, request: HttpRequest, object_id: str) -> HttpResponse:
        effect = gettext(
            "Its keys are answered 401 from now on, chats count to another project, and nothing new is made in it. "
            "Its usage and log stay, and it can be restored."
        )
        return self._put(request, object_id, project_archive, gettext("Archive"), effect)

    @action(description=_("Restore"), url_path="restore", permissions=["change"], icon="unarchive")
    def restore(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._put(request, object_id, project_restore, gettext("Restore"), gettext("Its keys work again."))

    def _put(
        self, request: HttpRequest, object_id: str, change: Callable[..., None], act: str, effect: str
    ) -> HttpResponse:
        """Archive or restore a project, after a confirmation."""
        project = self.get_object(request, unquote(object_id))
        if project is None:
            raise Http404
        if not self.has_change_permission(request, project):
            raise PermissionDenied
        page = reverse("admin:chat_project_change", args=[project.pk])
        if request.method != "POST":
            return confirm_page(request, act=act, subject=str(project), effect=effect, back=page)
        try:
            change(project=project, actor=request.user)
        except ValidationError as error:
            return self._refused(request, error, page)
        return redirect(page)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        try:
            with transaction.atomic():
                return super().changelist_view(request, extra_context)
        except ValidationError as error:
            return self._refused(request, error, reverse("admin:chat_project_changelist"))

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            return super().delete_view(request, object_id, extra_context)
        except ValidationError as error:
            return self._refused(request, error, reverse("admin:chat_project_change", args=[object_id]))

    def delete_model(self, request: HttpRequest, obj: Project) -> None:
        project_delete(project=obj, actor=request.user)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Project]) -> None:
        for project in queryset.select_related("org"):
            project_delete(project=project, actor=request.user)

    def _refused(self, request: HttpRequest, error: ValidationError, page: str) -> HttpResponse:
        self.message_user(request, " ".join(error.messages), messages.ERROR)
        return redirect(page)

    @action(description=_("Test the redaction"), url_path="redaction", permissions=["change"], icon="ink_eraser")
    def redaction(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what the redaction makes of a text. Nothing is stored."""
        project = self.get_object(request, unquote(object_id))
        if project is None:
            raise Http404
        if not self.has_change_permission(request, project):
            raise PermissionDenied
        form = RedactionForm(request.POST or None, initial={"patterns": project.redaction_patterns})
        context = {"title": _("Test the redaction"), "opts": self.opts, "project": project, "form": form}
        if request.method == "POST" and form.is_valid():
            context |= {"redacted": form.redacted()}
        return TemplateResponse(
            request, "admin/chat/project/redaction.html", self.admin_site.each_context(request) | context
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        """Return the organisation, where keys, chats and usage belong; of an archived project every field."""
        if obj is None:
            return ()
        return ("show_service_accounts", *(ProjectForm.Meta.fields if obj.archived_at else ("org",)))

    @display(description=_("Service accounts"))
    def show_service_accounts(self, project: Project) -> str:
        accounts = project.service_accounts.filter(deleted_at=None)
        links = ((reverse("admin:chat_serviceaccount_change", args=[one.pk]), one.name) for one in accounts)
        return format_html_join(", ", '<a href="{}">{}</a>', links) or gettext("none")

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
