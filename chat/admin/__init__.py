"""The console: Django admin with django-unfold. Pages parse, call one service or selector, and render."""

from chat.admin import access, catalogue, keys, logs, usage, users

__all__ = ["access", "catalogue", "keys", "logs", "usage", "users"]
