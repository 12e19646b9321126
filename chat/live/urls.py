"""The socket of live pages."""

from django.urls import path

from chat.live.consumers import LiveConsumer

websocket_urlpatterns = [path("ws/admin/live", LiveConsumer.as_asgi())]
