"""The processes of a one-machine installation: what runs where, with which environment and which time to stop."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.conf import settings

from chat.catalog.model_choice import ModelChoice
from lightcone_site.serve.child import SECRETS_OF_THE_START, ChildSpec


def log_path(name: str) -> Path:
    return Path(settings.DATA_DIR, "logs", f"{name}.log")


def web_spec() -> ChildSpec:
    return ChildSpec(
        name="web",
        command=(sys.executable, "-m", "lightcone_site.web"),
        directory=settings.BASE_DIR,
        log_path=log_path("web"),
        environment=_environment("web"),
        stop_s=settings.LIGHTCONE_DRAIN_DELAY_S + 15.0,
    )


def model_spec(choice: ModelChoice) -> ChildSpec:
    """The worker that holds the model and takes its requests once it is loaded; it gets the drain time and a little more to stop."""
    return ChildSpec(
        name="model",
        command=_worker("model"),
        directory=settings.BASE_DIR,
        log_path=log_path("model"),
        environment=_environment("model") | {"LIGHTCONE_MODEL": str(choice.path), "LIGHTCONE_MODEL_NAME": choice.name},
        stop_s=settings.LIGHTCONE_DRAIN_S + 10.0,
    )


def maintenance_spec() -> ChildSpec:
    return ChildSpec(
        name="maintenance",
        command=_worker("maintenance"),
        directory=settings.BASE_DIR,
        log_path=log_path("maintenance"),
        environment=_environment("maintenance"),
        stop_s=15.0,
    )


def _worker(role: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "lightcone_site.worker", "--name", f"{role}@%h")


def _environment(role: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in SECRETS_OF_THE_START}
    return inherited | {
        "LIGHTCONE_ROLE": role,
        "DJANGO_SETTINGS_MODULE": "lightcone_site.settings",
        "PYTHONUNBUFFERED": "1",
    }
