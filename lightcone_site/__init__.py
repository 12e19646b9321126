"""The Django site: settings, URL table, ASGI and Celery entry points. Holds no logic of its own."""

from lightcone_site.celery import app as celery_app

__all__ = ["celery_app"]
