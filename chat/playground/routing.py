"""WebSocket routes."""

from django.urls import path

from chat.playground.consumers import PlaygroundConsumer

websocket_urlpatterns = [path("ws/playground", PlaygroundConsumer.as_asgi())]
