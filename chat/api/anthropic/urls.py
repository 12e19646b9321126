"""Routes with and without a trailing slash. Unknown paths beneath answer in this dialect's shape."""

from django.urls import re_path

from chat.api.anthropic.dialect import COUNT_TOKENS, MESSAGES
from chat.api.completions import chat_completion
from chat.api.view import api_view, unknown_view

urlpatterns = [
    re_path(r"^v1/messages/?\Z", api_view(MESSAGES, post=chat_completion), name="messages"),
    re_path(
        r"^v1/messages/count_tokens/?\Z", api_view(COUNT_TOKENS, post=chat_completion), name="messages_count_tokens"
    ),
    re_path(r"^v1/messages/.*\Z", unknown_view(MESSAGES)),
]
