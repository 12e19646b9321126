"""The first steps on a new installation, for those who run it. Each ticks itself off."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from chat.access.models import ApiKey, Membership
from chat.catalog.model_choice import DEFAULT_NAME
from chat.catalog.models import ServedModel


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the guide. `code`: a line for a terminal, empty if there is none."""

    title: str
    text: str
    link: str
    link_text: str
    is_done: bool
    code: str = ""


def guide_steps(request: HttpRequest) -> list[Step]:
    """Return the steps; none once all are done."""
    model = ServedModel.objects.filter(enabled=True).order_by("-is_default", "name").first()
    name = model.name if model else "MODEL"
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hello!"}]})
    code = (
        f"curl {request.build_absolute_uri('/v1/chat/completions')} -H 'Authorization: Bearer '$LIGHTCONE_API_KEY "
        f"-H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )
    steps = [
        Step(
            _("Make an API key"),
            _("Each app gets one of its own, with its rights and limits. The first start has printed one, too."),
            reverse("admin:chat_apikey_add"),
            _("New key"),
            ApiKey.objects.filter(deleted_at=None).exists(),
        ),
        Step(
            _("Send a request with it"),
            _("Everything that speaks to OpenAI's API can speak to this address."),
            reverse("api_docs"),
            _("API documentation"),
            ApiKey.objects.exclude(last_used_at=None).exists(),
            code,
        ),
        Step(
            _("Bring somebody in"),
            _("A role says what a person sees and does."),
            reverse("admin:auth_user_add"),
            _("New account"),
            Membership.objects.order_by().values("user").distinct()[1:2].exists(),
        ),
        Step(
            _("Bring your model"),
            _("Pull one from the Hugging Face hub, or import a file, a folder or what Ollama has on this machine."),
            reverse("admin:chat_servedmodel_changelist"),
            _("Models"),
            ServedModel.objects.exclude(name=DEFAULT_NAME).exists(),
        ),
    ]
    return [] if all(step.is_done for step in steps) else steps
