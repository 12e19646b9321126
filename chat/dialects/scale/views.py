"""Routes of the Scale dialect: completions are completion.py's, lists of models models_views.py's."""

from __future__ import annotations

from chat.dialects.completion import completion
from chat.dialects.scale.dialect import SCALE
from chat.dialects.scale.models_views import chat_models_list, model_retrieve, models_list, models_page_list
from chat.dialects.view import api_view, unknown_view

chat_completions = api_view(SCALE, post=completion)
models = api_view(SCALE, get=models_list)
model = api_view(SCALE, get=model_retrieve)
chat_models = api_view(SCALE, get=chat_models_list)
models_page = api_view(SCALE, get=models_page_list)
unknown_route = unknown_view(SCALE)
