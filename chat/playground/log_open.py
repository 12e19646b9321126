"""Open a request of the request log in the playground: its kept texts become a chat of whoever opens it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST
from rest_framework.exceptions import ValidationError

from chat.access.people import playground_is_open_to
from chat.access.roles import Act
from chat.conversations.transfer import conversations_import
from chat.errors import ApiError
from chat.usage.log_scope import logs_reached
from chat.usage.log_texts import texts_read
from chat.usage.models import RequestLog


@require_POST
@login_required(login_url="sign_in")
def log_open(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """Import the request's messages and its first answer as a chat, and go there. The audit log notes the reading."""
    if not playground_is_open_to(request.user):
        raise PermissionDenied("The playground is not open to you.")
    log = logs_reached(RequestLog.objects.filter(pk=run_id), request.user, Act.BODIES_SEE).first()
    if log is None:
        raise Http404
    try:
        with transaction.atomic():
            texts = texts_read(log)
            if texts is None or not texts.request.get("messages"):
                raise Http404("No messages of this request are kept.")
            line = orjson.dumps({"messages": _messages(texts.request["messages"], texts.answers)}).decode()
            made = conversations_import(user_id=int(request.user.pk or 0), format_name="openai", text=line)
    except (ApiError, ValidationError) as error:
        raise PermissionDenied(f"This request cannot become a chat: {error}") from error
    return redirect("playground_conversation", conversation=made.conversations[0].public_id)


def _messages(asked: list[dict[str, Any]], answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answer = answers[0].get("content") if answers else None
    return [*asked, *([{"role": "assistant", "content": answer}] if answer else [])]
