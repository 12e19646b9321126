"""Each route exists bare and under /v1, with and without a trailing slash.

Nothing redirects, as clients turn POST into GET.
"""

from django.urls import re_path

from chat.api.openai import views
from chat.api.openai.dialect import TEXT_COMPLETIONS
from chat.api.openai.embeddings import EMBEDDINGS, embeddings
from chat.api.openai.tokens import (
    DETOKENIZE_DIALECT,
    RENDER_DIALECT,
    TOKENIZE_DIALECT,
    detokenize,
    render,
    tokenize,
)
from chat.api.text_completion import text_completion
from chat.api.view import api_view

urlpatterns = [
    re_path(r"^(?:v1/)?completions/?\Z", api_view(TEXT_COMPLETIONS, post=text_completion), name="completions"),
    re_path(r"^(?:v1/)?chat/completions/render/?\Z", api_view(RENDER_DIALECT, post=render), name="render"),
    re_path(r"^(?:v1/)?embeddings/?\Z", api_view(EMBEDDINGS, post=embeddings), name="embeddings"),
    re_path(r"^(?:v1/)?tokenize/?\Z", api_view(TOKENIZE_DIALECT, post=tokenize), name="tokenize"),
    re_path(r"^(?:v1/)?detokenize/?\Z", api_view(DETOKENIZE_DIALECT, post=detokenize), name="detokenize"),
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
