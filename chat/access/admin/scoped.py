"""Console pages that show and change what the roles of their user reach."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.admin.utils import unquote
from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from unfold.admin import ModelAdmin

from chat.access.policy import visible
from chat.access.roles import Act


class ScopedPage(ModelAdmin):
    """A page of a table whose rows belong to organisations and projects."""

    see: ClassVar[Act]
    manage: ClassVar[Act]
    org_column = "org_id"
    project_column = "project_id"
    only_saves = False
    """Its form has one button: what is saved is shown once, or lists are the place to go on."""

    def own_rows(self, request: HttpRequest) -> Q | None:
        """Return the condition of the user's own rows. None: there are none."""
        return None

    def reached(self, request: HttpRequest, queryset: QuerySet[Any], act: Act) -> QuerySet[Any]:
        """Return the rows that the user may see or manage, by `act`."""
        own = self.own_rows(request)
        return visible(queryset, request.user, act, org=self.org_column, project=self.project_column, own=own)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return self.reached(request, super().get_queryset(request), self.see)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        buttons = {"show_save_and_add_another": False, "show_save_and_continue": False} if self.only_saves else {}
        return super().changeform_view(request, object_id, form_url, buttons | (extra_context or {}))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and self.reaches(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and self.reaches(request, obj)

    def reaches(self, request: HttpRequest, obj: Any) -> bool:
        """Return True if the user manages a row. django-unfold asks with its id, Django with the row, or without."""
        if obj is None:
            return True
        try:
            row_id = obj.pk if isinstance(obj, Model) else self.model._meta.pk.to_python(unquote(str(obj)))
        except ValidationError:
            return False
        return self.reached(request, self.model._base_manager.filter(pk=row_id), self.manage).exists()
