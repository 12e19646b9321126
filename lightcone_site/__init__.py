"""The Django site: settings, URL table, ASGI and Celery entry points. Holds no logic of its own."""
