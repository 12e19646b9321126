"""The console: Django admin with django-unfold. Pages parse, call one service or selector, and render."""

from chat.admin import access, batches, catalogue, files, keys, logs, usage, users

__all__ = ["access", "batches", "catalogue", "files", "keys", "logs", "usage", "users"]
