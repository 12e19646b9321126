"""The Celery application. It carries requests and control, never tokens.

LIGHTCONE_ROLE says what a worker process is: `model` (chat.workers.model) or `maintenance` (chat.workers.maintenance). The steps are named,
not imported, so that web processes, which only send tasks, load neither the worker nor the engine.
"""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lightcone_site.settings")

STEPS = {"model": "chat.workers.model_step:ModelStep", "maintenance": "chat.workers.maintenance:MaintenanceStep"}

app = Celery("lightcone")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.set_default()
app.autodiscover_tasks(["chat"])

if (role := os.environ.get("LIGHTCONE_ROLE")) in STEPS:
    app.steps["worker"].add(STEPS[role])


@setup_logging.connect
def keep_logging(**_: object) -> None:
    """Django has set logging up already (settings.LOGGING); Celery leaves it alone when somebody listens here."""
