"""Routes of the Messages dialect: messages and counts are completion.py's, models those of models.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from chat.dialects.completion import completion
from chat.dialects.messages.dialect import CountTokens, Messages
from chat.dialects.messages.models import model_retrieve, models_list
from chat.dialects.view import Handler, api_view, request_id, unknown_view
from chat.errors import ApiError


async def message_create(request: HttpRequest, dialect: Messages) -> HttpResponseBase:
    """A message, or its tokens counted: the dialect tells."""
    try:
        return await completion(request, dialect)
    except ApiError as error:
        raise dialect.names.reword(error) from None


def messages_view(kind: type[Messages], make: Callable[[Messages], Handler]) -> Handler:
    """The view that `make` gives, of a dialect for each request, with its id in the header that Anthropic's clients look at."""

    @csrf_exempt
    async def view(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        response = await make(kind(request_id(request)))(request, **kwargs)
        response["request-id"] = request_id(request)
        return response

    return view


messages = messages_view(Messages, partial(api_view, post=message_create))
count_tokens = messages_view(CountTokens, partial(api_view, post=message_create))
models = messages_view(Messages, partial(api_view, get=models_list))
model = messages_view(Messages, partial(api_view, get=model_retrieve))
unknown_route = messages_view(Messages, unknown_view)
