"""A worker process loads the models and none of the pages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lightcone_site.worker import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "rest_framework",
    "chat.api.openapi",
    "unfold",
    "daphne",
    "django.contrib.admin.sites",
    "chat.api.middleware",
    "chat.admin",
)
TERMINAL = ("celery.bin", "prompt_toolkit")
ENGINE = """
import sys
import django
django.setup()
import chat.workers.model
print("ok", [name for name in ("torch", "numpy", "llguidance", "transformers") if name in sys.modules])
"""
CODE = f"""
import sys
import celery.apps.worker
from lightcone_site.worker import app
app.loader.import_default_modules()  # as a worker does; Django's checks run here
print("ok", "chat.generate" in app.tasks, [name for name in {PAGES + TERMINAL} if name in sys.modules])
"""


@pytest.mark.parametrize("role", ["model", "maintenance"])
def test_a_worker_loads_no_pages_and_no_terminal_libraries(role: str, tmp_path: Path) -> None:
    names = {
        "LIGHTCONE_ROLE": role,
        "LIGHTCONE_DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "lightcone_site.settings",
    }
    result = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, env=os.environ | names, cwd=ROOT, check=True
    )
    assert result.stdout.splitlines()[-1:] == ["ok True []"], result.stderr


def test_a_model_worker_loads_no_numeric_or_grammar_library(tmp_path: Path) -> None:
    names = {
        "LIGHTCONE_ROLE": "model",
        "LIGHTCONE_DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "lightcone_site.settings",
    }
    result = subprocess.run(
        [sys.executable, "-c", ENGINE], capture_output=True, text=True, env=os.environ | names, cwd=ROOT, check=True
    )
    assert result.stdout.splitlines()[-1:] == ["ok []"], result.stderr


def test_a_worker_without_a_role_lists_the_roles(monkeypatch) -> None:
    monkeypatch.setenv("LIGHTCONE_ROLE", "web")
    with pytest.raises(SystemExit, match="LIGHTCONE_ROLE must be one of model, maintenance, got 'web'"):
        main([])
