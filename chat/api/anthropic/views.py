"""Views of the Messages dialect."""

from chat.api.anthropic.dialect import COUNT_TOKENS, MESSAGES
from chat.api.anthropic.models import model_retrieve, models_list
from chat.api.chat_completion import completion
from chat.api.view import api_view, unknown_view

messages = api_view(MESSAGES, post=completion)
count_tokens = api_view(COUNT_TOKENS, post=completion)
models = api_view(MESSAGES, get=models_list)
model = api_view(MESSAGES, get=model_retrieve)
unknown_route = unknown_view(MESSAGES)
