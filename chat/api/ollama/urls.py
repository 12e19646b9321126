"""Routes below `/api`, with and without a slash. Bodies are JSON whatever their type says: curl's is a form's."""

from collections.abc import Awaitable, Callable
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import re_path

from chat.api.ollama import management, models, views
from chat.api.ollama.dialect import CHAT, EMBED, EMBEDDINGS, GENERATE, OLLAMA_FORMAT
from chat.api.view import api_view, unknown_view

View = Callable[..., Awaitable[HttpResponseBase]]


def any_type(handler: View) -> View:
    """Return the handler with bodies of every media type. A browser's page is told by its Origin, not by a type."""

    async def handle(request: HttpRequest, dialect: Any, **kwargs: Any) -> HttpResponseBase:
        request.lightcone_any_type = True
        return await handler(request, dialect, **kwargs)

    return handle


def route(name: str, view: View) -> Any:
    return re_path(rf"^api/{name}/?\Z", view, name=f"ollama_{name}")


urlpatterns = [
    route("chat", api_view(CHAT, post=any_type(views.answer))),
    route("generate", api_view(GENERATE, post=any_type(views.answer))),
    route("embed", api_view(EMBED, post=any_type(views.embed))),
    route("embeddings", api_view(EMBEDDINGS, post=any_type(views.embeddings))),
    route("tags", api_view(OLLAMA_FORMAT, get=models.tags)),
    route("show", api_view(OLLAMA_FORMAT, post=any_type(models.show))),
    route("ps", api_view(OLLAMA_FORMAT, get=models.running)),
    route("version", api_view(OLLAMA_FORMAT, get=models.version)),
    route("pull", api_view(OLLAMA_FORMAT, post=any_type(management.pull))),
    route("create", api_view(OLLAMA_FORMAT, post=any_type(management.create))),
    route("copy", api_view(OLLAMA_FORMAT, post=any_type(management.copy))),
    route("delete", api_view(OLLAMA_FORMAT, delete=any_type(management.delete))),
    re_path(r"^api(?!/schema/?\Z)(?:/.*)?\Z", unknown_view(OLLAMA_FORMAT)),
]
