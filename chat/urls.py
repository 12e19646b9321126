"""Every API route, and the pages that describe them."""

from django.urls import include, path, re_path

from chat.api import registry, status
from chat.api.openapi.document import docs_view, schema_view

urlpatterns = [
    path("", include("chat.api.model_lists")),
    path("", include("chat.batches.urls")),
    path("", include("chat.model_jobs.urls")),
    path("", include("chat.organization.urls")),
    *(path("", include(module)) for entry in registry.DIALECTS for module in entry.urls),
    re_path(r"^health/live/?\Z", status.live, name="health_live"),
    re_path(r"^health/ready/?\Z", status.ready, name="health_ready"),
    re_path(r"^version/?\Z", status.version, name="version"),
    re_path(r"^api/schema/?\Z", schema_view, name="api_schema"),
    re_path(r"^docs/?\Z", docs_view, name="api_docs"),
]
