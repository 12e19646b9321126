"""What a model's files say, asked of the engine in a process of its own: files are not trusted, and torch is large."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from chat.model_store.errors import StoreError
from engine.api import ModelDescription

PROGRAM = "engine.core.model_description"
INSPECTION_S = 300
ROOT = Path(__file__).resolve().parents[2]


def description_of(path: Path) -> ModelDescription:
    """Describe the model at `path`, a GGUF file or a folder. Raises StoreError if it cannot be served."""
    command = [sys.executable, "-m", PROGRAM, str(path)]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=INSPECTION_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"{path.name} could not be opened within {INSPECTION_S} s.") from error
    if answer.returncode == 0:
        return ModelDescription(**json.loads(answer.stdout.splitlines()[-1]))
    lines = (answer.stdout.strip() or answer.stderr.strip()).splitlines()
    raise StoreError(lines[-1] if lines else f"To open {path.name} ended the process that tried: its file is damaged.")
