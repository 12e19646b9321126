"""The console pages of the request log: the list with its filters, the page of a request, and exports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.views import ChangeList

from chat.access import selectors
from chat.access.admin.scoped import ScopedPage
from chat.access.policy import may
from chat.access.roles import Act
from chat.console.export import CONTENT_TYPES, export_response, pages_of
from chat.console.figures import milliseconds, number
from chat.console.pages import (
    BEFORE,
    Labelled,
    NewestFirstChangeList,
    ReadOnlyNewestFirst,
    column,
    instant,
)
from chat.usage.log_detail import answer_texts, cost_sum, curl_line, media_text, message_texts, shown_text, stretches
from chat.usage.log_export import COLUMNS, export_record, log_values
from chat.usage.log_filters import LOG_FILTERS, OUTCOMES
from chat.usage.log_links import limits_of, links_of
from chat.usage.log_scope import logs_reached, scope_columns
from chat.usage.log_search import LOOKED_AT, best_column, logs_page, logs_with_prefix
from chat.usage.log_texts import texts_are_kept, texts_read
from chat.usage.models import RequestLog
from chat.usage.prices import cost_text
from engine.api import Outcome

TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "show_cost")


class LogChangeList(NewestFirstChangeList):
    """The list of requests. It looks at a bounded number of rows, and says so if there are more."""

    looked_until: UUID | None = None
    looked_at = LOOKED_AT

    def page_read(self, request: HttpRequest) -> list[RequestLog]:
        found = logs_page(
            self.queryset,
            columns=self.columns(request),
            bounds=self.bounds(request),
            is_sifted=self.is_sifted(request),
            size=self.list_per_page + 1,
        )
        self.looked_until = found.looked_until
        return found.rows

    def exported(self, request: HttpRequest) -> QuerySet[RequestLog]:
        """Return all that the filters find."""
        rows = self.queryset.filter(self.bounds(request))
        return rows.filter(**best_column(self.columns(request), self.bounds(request)))

    def columns(self, request: HttpRequest) -> dict[str, Any]:
        """Return the values of indexed columns that all rows of the list have."""
        if getattr(request, "lightcone_search_is_narrow", False):
            return {}
        return self.filtered() | dict(scope_columns(request.user))

    def filtered(self) -> dict[str, Any]:
        """Return the values of indexed columns by the filters."""
        specs = [spec for spec in self.filter_specs if hasattr(spec, "columns")]
        return {name: value for spec in specs for name, value in spec.columns().items()}

    def bounds(self, request: HttpRequest) -> Q:
        bounds = Q()
        for spec in self.filter_specs:
            if hasattr(spec, "bounds"):
                bounds &= spec.bounds()
        if request.GET.get(BEFORE):
            bounds &= Q(pk__lt=self.model._meta.pk.to_python(request.GET[BEFORE]))
        return bounds

    def is_sifted(self, request: HttpRequest) -> bool:
        """Return True if rows are compared with more than what an index finds."""
        if getattr(request, "lightcone_search_is_narrow", False):
            return False
        is_indexed = lambda spec: hasattr(spec, "columns") or hasattr(spec, "bounds")  # noqa: E731
        others = any(spec.shown() for spec in self.filter_specs if not is_indexed(spec))
        scope, filtered = scope_columns(request.user), self.filtered()
        is_covered = request.user.is_superuser or bool(scope)
        is_beside = any(filtered.get(name, value) != value for name, value in scope.items())
        return bool(others or self.query or not is_covered or is_beside)

    @property
    def on(self) -> str | None:
        """Return the query string that goes on beyond the rows looked at."""
        return self.link(**{BEFORE: str(self.looked_until)}) if self.looked_until else None

    @property
    def looked_since(self) -> str:
        """Return the instant of the oldest row looked at."""
        assert self.looked_until is not None
        return f"{datetime.fromtimestamp((self.looked_until.int >> 80) / 1000, UTC):%Y-%m-%d %H:%M:%S}"


@admin.register(RequestLog)
class RequestLogAdmin(ReadOnlyNewestFirst, ScopedPage):
    see = Act.LOGS_SEE
    list_display = (
        "show_time",
        "show_outcome",
        "status",
        "model",
        "key_public_id",
        "show_prompt",
        "show_completion",
        "show_cost",
        "show_ttft",
        "show_duration",
        "finish_reason",
    )
    list_filter = LOG_FILTERS
    list_before_template = "admin/chat/requestlog/list_head.html"
    search_fields = ("run_id",)
    search_help_text = _("The beginning of a request id, of the id or user that the client sent, or of a batch's id")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    *("run_id", "show_arrived", "show_outcome", "status", "finish_reason"),
                    *("error_code", "limit_hit", "error_message"),
                )
            },
        ),
        (
            _("Request"),
            {
                "fields": (
                    "model_asked",
                    "model",
                    "dialect",
                    "route",
                    "is_stream",
                    "client_request_id",
                    "batch_id",
                    "user_label",
                    "metadata",
                    "show_parameters",
                    "show_media",
                )
            },
        ),
        (_("Tokens"), {"fields": TOKENS}),
        (_("Time"), {"fields": ("show_queue", "show_ttft", "show_duration", "attempts", "worker")}),
        (
            _("Caller"),
            {"fields": ("key_public_id", "show_project", "address", "user_agent", "retry_count", "patience_s")},
        ),
    )

    change_form_before_template = "admin/chat/requestlog/detail.html"

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:
        return LogChangeList

    def reached(self, request: HttpRequest, queryset: QuerySet[Any], act: Act) -> QuerySet[Any]:
        return logs_reached(queryset, request.user, act)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet, search_term: str) -> tuple[QuerySet, bool]:
        term = search_term.strip()
        if not term or "\0" in term:
            return queryset, False
        found, request.lightcone_search_is_narrow = logs_with_prefix(queryset, term)
        return found, False

    def get_urls(self) -> list[Any]:
        return [
            path("export.<str:format_name>", self.admin_site.admin_view(self.export), name="chat_requestlog_export"),
            path("<path:object_id>/text/", self.admin_site.admin_view(self.text), name="chat_requestlog_text"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Show the list, or the one request whose whole id is searched for: errors of the API give such ids."""
        term = request.GET.get("q", "").strip()
        if set(request.GET) == {"q"} and self.has_view_permission(request) and (run := self._named(request, term)):
            return redirect("admin:chat_requestlog_change", run)
        return super().changelist_view(request, extra_context)

    def _named(self, request: HttpRequest, term: str) -> UUID | None:
        """Return the one request whose run id, or whose client's id, is a text."""
        if "\0" in term or not term:
            return None
        try:
            fits = Q(pk=UUID(hex=term))
        except ValueError:
            fits = Q(client_request_id=term)
        found = list(self.get_queryset(request).filter(fits).values_list("pk", flat=True)[:2])
        return found[0] if len(found) == 1 else None

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponseBase:
        log = self.get_object(request, object_id)
        shown: dict[str, Any] = {}
        if log is not None:
            shown = {
                "stretches": stretches(log),
                "cost": cost_sum(log),
                "links": links_of(self.admin_site, request, log),
                "limits": limits_of(self.admin_site, request, log),
                "has_text": self._reads_text(request, log) and texts_are_kept(log),
                "curl": curl_line(log, address=request.build_absolute_uri("/").rstrip("/")),
            }
        return super().change_view(request, object_id, form_url, shown | (extra_context or {}))

    def text(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Show what was asked and answered, which the audit log notes."""
        log = self.get_object(request, unquote(object_id)) if self.has_view_permission(request) else None
        if log is None:
            raise Http404
        if not self._reads_text(request, log):
            raise PermissionDenied
        with transaction.atomic():
            texts = texts_read(log)
        if texts is None:
            raise Http404("No text of this request is kept.")
        context = {
            "title": _("Text of a request"),
            "log": log,
            "messages_shown": message_texts(texts.request),
            "answers_shown": answer_texts(texts.answers),
            "tools_shown": shown_text(texts.request["tools"]) if texts.request.get("tools") else "",
            "is_cut": texts.is_cut,
            "curl": curl_line(log, address=request.build_absolute_uri("/").rstrip("/"), request=texts.request),
            "may_chat": may(request.user, Act.CHAT) and bool(texts.request.get("messages")),
            "opts": self.opts,
        }
        response = TemplateResponse(
            request, "admin/chat/requestlog/text.html", self.admin_site.each_context(request) | context
        )
        add_never_cache_headers(response)
        return response

    def _reads_text(self, request: HttpRequest, log: RequestLog) -> bool:
        return logs_reached(RequestLog.objects.filter(pk=log.pk), request.user, Act.BODIES_SEE).exists()

    def export(self, request: HttpRequest, format_name: str) -> HttpResponseBase:
        """Stream the requests that the filters of the query string find."""
        if format_name not in CONTENT_TYPES:
            raise Http404
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            found = self.get_changelist_instance(request).exported(request)
        except IncorrectLookupParameters:
            return redirect("admin:chat_requestlog_changelist")
        what: Any = {"act": Act.LOGS_SEE, "action": "requests.export", "filters": request.GET.dict()}
        export_record(user=request.user, format_name=format_name, **what)
        return export_response(
            pages_of(found), columns=COLUMNS, values=log_values, format_name=format_name, name="lightcone-requests"
        )

    @display(description=_("Time (UTC)"))
    def show_time(self, log: RequestLog) -> str:
        return f"{log.arrived_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"

    show_completion = column(_("completion"), "completion_tokens", number)
    show_cost = column(_("Cost"), "cost_nanos", lambda nanos: cost_text(nanos) if nanos else "–")

    @display(description=_("Tokens: prompt (cached)"))
    def show_prompt(self, log: RequestLog) -> str:
        return f"{number(log.prompt_tokens)} ({number(log.cached_tokens)})"

    show_arrived = column(_("Arrived"), "arrived_at", instant)
    show_queue = column(_("Time in queue"), "queue_ms", milliseconds)
    show_ttft = column(_("First token"), "ttft_ms", milliseconds)
    show_duration = column(_("Duration"), "duration_ms", milliseconds)

    @display(
        description=_("Outcome"),
        label={
            Outcome.FINISHED: "success",
            Outcome.STOPPED: "info",
            Outcome.DISCONNECTED: "warning",
            Outcome.TIMED_OUT: "warning",
            Outcome.REJECTED: "warning",
            Outcome.INTERRUPTED: "danger",
            Outcome.FAILED: "danger",
            Outcome.WORKER_LOST: "danger",
        },
    )
    def show_outcome(self, log: RequestLog) -> Labelled:
        return Labelled(log.outcome, OUTCOMES.get(log.outcome, log.outcome))

    @display(description=_("Parameters"))
    def show_parameters(self, log: RequestLog) -> str:
        if log.parameters is None:
            return "–"
        shown = ", ".join(f"{name}={value}" for name, value in log.parameters.items())
        return shown or str(_("the model's defaults"))

    @display(description=_("Beside text"))
    def show_media(self, log: RequestLog) -> str:
        return media_text(log.media) or "–"

    @display(description=_("Project"))
    def show_project(self, log: RequestLog) -> str:
        return selectors.project_name(log.project_id)
