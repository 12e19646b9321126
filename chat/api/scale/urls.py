"""Routes of both generations of Scale's clients, each with and without a trailing slash; any other path below answers in its shape too."""

from django.urls import re_path

from chat.api.scale import views

urlpatterns = [
    re_path(r"^v4/beta/chat/completions/?\Z", views.chat_completions, name="scale_chat_completions"),
    re_path(r"^v5/chat/completions/?\Z", views.chat_completions, name="scale_v5_chat_completions"),
    re_path(r"^v4/beta/completions/?\Z", views.completions, name="scale_completions"),
    re_path(r"^v4/models/?\Z", views.models, name="scale_models"),
    re_path(r"^v4/models/(?P<model_id>.+?)/?\Z", views.model, name="scale_model"),
    re_path(r"^v5/chat/completions/models/?\Z", views.chat_models, name="scale_v5_chat_models"),
    re_path(r"^v5/models/?\Z", views.models_page, name="scale_v5_models"),
    re_path(r"^v[45](?:/.*)?\Z", views.unknown_route),
]
