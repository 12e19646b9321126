"""Routes of the playground: pages, and the socket."""

from django.urls import include, path, re_path

from chat.playground.consumers import PlaygroundConsumer
from chat.playground.views import SignIn, SignOut, index

urlpatterns = [
    path("", index, name="playground"),
    re_path(r"^c/(?P<conversation>[A-Za-z0-9-]{1,64})\Z", index, name="playground_conversation"),
    path("playground/api/", include("chat.conversations.urls")),
    path("playground/api/", include("chat.playground.api_urls")),
    path("sign-in", SignIn.as_view(), name="sign_in"),
    path("sign-out", SignOut.as_view(), name="sign_out"),
]
websocket_urlpatterns = [path("ws/playground", PlaygroundConsumer.as_asgi())]
