"""Each route exists bare and under /v1, with and without a trailing slash; nothing redirects, as clients turn POST into GET."""

from django.urls import re_path

from chat.dialects.lightcone import views

urlpatterns = [
    re_path(r"^(?:v1/)?chat/completions/?\Z", views.chat_completions, name="chat_completions"),
    re_path(r"^(?:v1/)?models/?\Z", views.models, name="models"),
    re_path(r"^(?:v1/)?models/(?P<model_id>.+?)/?\Z", views.model, name="model"),
    re_path(r"^(?:v1|chat|models)(?:/.*)?\Z", views.unknown_route),
]
