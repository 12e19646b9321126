"""Routes of the Scale dialect: completions are those of completion.py and text_completion.py, lists of models models_views.py's."""

from __future__ import annotations

from chat.api.chat_completion import completion
from chat.api.scale.dialect import SCALE, SCALE_TEXTS
from chat.api.scale.models_views import chat_models_list, model_retrieve, models_list, models_page_list
from chat.api.text_completion import text_completion
from chat.api.view import api_view, unknown_view

chat_completions = api_view(SCALE, post=completion)
completions = api_view(SCALE_TEXTS, post=text_completion)
models = api_view(SCALE, get=models_list)
model = api_view(SCALE, get=model_retrieve)
chat_models = api_view(SCALE, get=chat_models_list)
models_page = api_view(SCALE, get=models_page_list)
unknown_route = unknown_view(SCALE)
