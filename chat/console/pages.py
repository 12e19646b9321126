"""Parts that several console pages share: form fields, cell texts, and lists of large tables.

Such a list is newest first, paged by primary key at one query each, not counted, not sortable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from django import forms
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import conditional_escape
from django.utils.translation import gettext as _
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.views import ChangeList
from unfold.widgets import UnfoldAdminTextareaWidget

BEFORE = "before"


class LinesField(forms.CharField):
    """A form field for a list of texts, one per line, without empty lines."""

    widget = UnfoldAdminTextareaWidget

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "max_length": 20_000, **options})
        self.widget.attrs["rows"] = 3

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:
        return [line.strip() for line in super().to_python(value).splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return list(initial or []) != self.to_python(data)


def column(description: str | Promise, field: str, text: Callable[[Any], str]) -> Callable[[Any, Any], str]:
    """Return the method of a page that shows one field of a row as `text` formats it."""

    @display(description=description)
    def show(page: Any, row: Any) -> str:
        return text(getattr(row, field))

    return show


class Labelled(NamedTuple):
    """What a `display` with a label returns: a value, by which lists colour it, and the name that is shown.

    Pages of one row show the name alone, where a plain tuple would stand with brackets and quotes.
    """

    value: str
    name: str | Promise

    def __html__(self) -> str:
        return conditional_escape(self.name)


class Heading(NamedTuple):
    """What a `display` with a header returns: a title, and a smaller line below it. Pages of one row show one line."""

    title: str
    remark: str

    def __str__(self) -> str:
        return ", ".join(filter(None, self))


def instant(value: Any) -> str:
    """Format an instant as `2026-01-31 12:00:05 UTC`, or a dash."""
    return f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S %Z}" if value else "–"


def expiry(value: Any) -> str:
    return instant(value) if value else _("never")


class OlderNewerPaginator(Paginator):
    """A paginator that names the template. The rows of the page have been read already."""

    template_name = "admin/older_newer.html"


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter that is set: its title, its value, and the query string without it."""

    title: str
    text: str
    url: str


class NewestFirstChangeList(ChangeList):
    """The list behind a page. `before` in the query string is the last primary key of the previous page."""

    older: str | None = None
    """The query string of the next page."""
    asked: QueryDict
    """The query string."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet) -> list[str]:
        return ["-pk"]

    def get_filters_params(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        kept = super().get_filters_params(params)
        kept.pop(BEFORE, None)
        return kept

    def link(self, *, without: Collection[str] = (), **values: str) -> str:
        """Return the query string with other values and without some, and of the first page unless `before` is given.

        Django's own drops everything whose name begins like what is left out.
        """
        asked = self.asked.copy()
        for name in (BEFORE, "p", "e", *without):
            asked.pop(name, None)
        for name, value in values.items():
            asked[name] = value
        return f"?{asked.urlencode()}"

    def chips(self) -> list[Chip]:
        """Return what is filtered by and searched for, each with the way to the list without it."""
        specs = [spec for spec in self.filter_specs if hasattr(spec, "shown")]
        chips = [
            Chip(spec.title, text, self.link(without=(spec.parameter_name,)))
            for spec in specs
            if (text := spec.shown())
        ]
        return [*chips, Chip(_("search"), self.query, self.link(without=(SEARCH_VAR,)))] if self.query else chips

    def problems(self) -> list[str]:
        """Return what is wrong with filters, as sentences."""
        return [text for spec in self.filter_specs if hasattr(spec, "problem") and (text := spec.problem())]

    def get_queryset(self, request: HttpRequest, exclude_parameters: list[str] | None = None) -> QuerySet:
        self.asked = request.GET
        queryset = super().get_queryset(request, exclude_parameters)
        if before := request.GET.get(BEFORE):
            try:
                return queryset.filter(pk__lt=self.model._meta.pk.to_python(before))
            except ValidationError as error:
                raise IncorrectLookupParameters(error) from error
        return queryset

    def page_read(self, request: HttpRequest) -> list[Any]:
        """Read the rows of the page, and one more if there is one."""
        return list(self.queryset[: self.list_per_page + 1])

    def get_results(self, request: HttpRequest) -> None:
        rows = self.page_read(request)
        self.result_list = rows[: self.list_per_page]
        self.result_count = len(self.result_list)
        self.full_result_count = self.result_count
        self.show_full_result_count = False
        self.show_admin_actions = False
        self.can_show_all = self.multi_page = False
        self.paginator = OlderNewerPaginator(self.result_list, self.list_per_page)
        if len(rows) > self.list_per_page:
            self.older = self.link(**{BEFORE: str(self.result_list[-1].pk)})
        self.newest = self.link() if request.GET.get(BEFORE) else None


class ReadOnlyNewestFirst(ModelAdmin):
    """A page of a table that only services write. A search compares the first search field, if there is one."""

    show_full_result_count = False
    list_per_page = 50
    list_filter_submit = True
    sortable_by = ()
    show_facets = False
    actions = None

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:
        return NewestFirstChangeList

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in {spec.parameter_name for spec in self.list_filter}

    def get_search_results(self, request: HttpRequest, queryset: QuerySet, search_term: str) -> tuple[QuerySet, bool]:
        term = search_term.strip()
        is_searched = self.search_fields and term and "\0" not in term
        return queryset.filter(**{self.search_fields[0]: term}) if is_searched else queryset, False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
