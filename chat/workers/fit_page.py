"""The page that says whether a model fits, before it is loaded."""

from __future__ import annotations

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from chat.access.policy import may
from chat.access.roles import Act
from chat.catalog.models import ServedModel


@never_cache
@require_safe
def fit(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the sum of what a model needs. Raises PermissionDenied and Http404."""
    from chat.workers.fit import model_fit  # imports the engine's settings, which a web process starts without

    if not may(request.user, Act.MODELS_MANAGE):
        raise PermissionDenied
    model = get_object_or_404(ServedModel, pk=pk)
    context = {"title": _("Does %(name)s fit?") % {"name": model.name}, "model": model, "fit": model_fit(model=model)}
    return TemplateResponse(request, "admin/live/fit.html", admin.site.each_context(request) | context)


admin.site.pages.append(path("models/<int:pk>/fit/", admin.site.admin_view(fit), name="model_fit"))
