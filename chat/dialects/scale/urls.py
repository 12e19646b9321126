"""Paths under /v4 and /v5."""

from django.urls import re_path

from chat.dialects.scale.views import unknown_route

urlpatterns = [re_path(r"^v[45](?:/.*)?\Z", unknown_route)]
