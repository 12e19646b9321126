"""The Celery application. It carries requests and control commands, never tokens.

The bootsteps of LIGHTCONE_ROLE are named, not imported, so that web processes load neither a worker nor the engine.
"""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lightcone_site.settings")

STEPS = {"model": "chat.workers.host_step:HostStep", "maintenance": "chat.workers.maintenance:MaintenanceStep"}

app = Celery("lightcone")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.set_default()
app.autodiscover_tasks(["chat"])

if (role := os.environ.get("LIGHTCONE_ROLE")) in STEPS:
    app.steps["worker"].add(STEPS[role])


@setup_logging.connect
def keep_logging(**_: object) -> None:
    """Do nothing: with a receiver of this signal, Celery leaves logging to Django (settings.LOGGING)."""
