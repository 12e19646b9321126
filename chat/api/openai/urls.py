"""Each route exists bare and under /v1, with and without a trailing slash; nothing redirects, as clients turn POST into GET."""

from django.urls import re_path

from chat.api.openai import views

urlpatterns = [
    re_path(r"^(?:v1/)?chat/completions/?\Z", views.chat_completions, name="chat_completions"),
    re_path(r"^(?:v1/)?chat/completions/(?P<completion_id>[^/]+)/?\Z", views.chat_completion, name="chat_completion"),
    re_path(
        r"^(?:v1/)?chat/completions/(?P<completion_id>[^/]+)/events/?\Z",
        views.chat_completion_events,
        name="chat_completion_events",
    ),
    re_path(
        r"^(?:v1/)?chat/completions/(?P<completion_id>[^/]+)/messages/?\Z",
        views.chat_completion_messages,
        name="chat_completion_messages",
    ),
    re_path(r"^(?:v1/)?models/?\Z", views.models, name="models"),
    re_path(r"^(?:v1/)?models/(?P<model_id>.+?)/?\Z", views.model, name="model"),
    re_path(r"^(?:v1|chat|models)(?:/.*)?\Z", views.unknown_route),
]
