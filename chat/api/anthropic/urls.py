"""Routes with and without a trailing slash. Unknown paths beneath answer in this dialect's shape."""

from django.urls import re_path

from chat.api.anthropic import views

urlpatterns = [
    re_path(r"^v1/messages/?\Z", views.messages, name="messages"),
    re_path(r"^v1/messages/count_tokens/?\Z", views.count_tokens, name="messages_count_tokens"),
    re_path(r"^v1/messages/.*\Z", views.unknown_route),
]
