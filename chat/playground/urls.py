"""Routes of the playground: pages, and the socket."""

from django.urls import include, path, re_path
from django.views.i18n import set_language

from chat.playground.code.view import code_view
from chat.playground.consumers import PlaygroundConsumer
from chat.playground.log_open import log_open
from chat.playground.pages import manifest, strings
from chat.playground.run_views import events_view, start_view, stop_view
from chat.playground.views import index, shared

RUN = r"^playground/api/runs/(?P<run_name>[A-Za-z0-9-]{1,64})"

urlpatterns = [
    path("", index, name="playground"),
    re_path(r"^c/(?P<conversation>[A-Za-z0-9-]{1,64})\Z", index, name="playground_conversation"),
    re_path(r"^shared/(?P<token>[A-Za-z0-9_-]{1,64})\Z", shared, name="shared_page"),
    path("playground/api/runs", start_view, name="playground_runs"),
    path("playground/api/code", code_view, name="playground_code"),
    re_path(RUN + r"/events\Z", events_view, name="playground_run_events"),
    re_path(RUN + r"/stop\Z", stop_view, name="playground_run_stop"),
    path("playground/api/requests/<uuid:run_id>/open", log_open, name="playground_log_open"),
    path("playground/api/catalog", strings, name="page_strings"),
    path("playground/api/", include("chat.conversations.urls")),
    path("playground/api/", include("chat.playground.api_urls")),
    path("language", set_language, name="set_language"),
    path("manifest.webmanifest", manifest, name="manifest"),
]
websocket_urlpatterns = [path("ws/playground", PlaygroundConsumer.as_asgi())]
