"""Every API route, and the pages that describe them."""

from django.urls import include, path, re_path

from chat import api_docs, health, version

urlpatterns = [
    path("", include("chat.dialects.prompts.urls")),
    path("", include("chat.dialects.messages.urls")),
    path("", include("chat.dialects.responses.urls")),
    path("", include("chat.model_lists")),
    path("", include("chat.dialects.batches.urls")),
    path("", include("chat.dialects.lightcone.urls")),
    path("", include("chat.dialects.scale.urls")),
    re_path(r"^health/live/?\Z", health.live, name="health_live"),
    re_path(r"^health/ready/?\Z", health.ready, name="health_ready"),
    re_path(r"^version/?\Z", version.version, name="version"),
    re_path(r"^api/schema/?\Z", api_docs.schema_view, name="api_schema"),
    re_path(r"^docs/?\Z", api_docs.docs_view, name="api_docs"),
]
