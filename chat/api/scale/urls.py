"""Routes of both generations, with and without a slash. Unknown paths below answer in Scale's shape too."""

from django.urls import re_path

from chat.api.completions import chat_completion, text_completion
from chat.api.scale.dialect import SCALE, SCALE_TEXTS
from chat.api.scale.models_views import chat_models_list, model_retrieve, models_list, models_page_list
from chat.api.view import api_view, unknown_view

chat_completions = api_view(SCALE, post=chat_completion)
completions = api_view(SCALE_TEXTS, post=text_completion)
models = api_view(SCALE, get=models_list)
model = api_view(SCALE, get=model_retrieve)
chat_models = api_view(SCALE, get=chat_models_list)
models_page = api_view(SCALE, get=models_page_list)
unknown_route = unknown_view(SCALE)

urlpatterns = [
    re_path(r"^v4/beta/chat/completions/?\Z", chat_completions, name="scale_chat_completions"),
    re_path(r"^v5/chat/completions/?\Z", chat_completions, name="scale_v5_chat_completions"),
    re_path(r"^v4/beta/completions/?\Z", completions, name="scale_completions"),
    re_path(r"^v4/models/?\Z", models, name="scale_models"),
    re_path(r"^v4/models/(?P<model_id>.+?)/?\Z", model, name="scale_model"),
    re_path(r"^v5/chat/completions/models/?\Z", chat_models, name="scale_v5_chat_models"),
    re_path(r"^v5/models/?\Z", models_page, name="scale_v5_models"),
    re_path(r"^v[45](?:/.*)?\Z", unknown_route),
]
