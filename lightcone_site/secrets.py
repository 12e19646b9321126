"""Secrets of an installation that the operator did not set: made once, kept in the data directory with mode 600."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def installation_secret(data_dir: Path, name: str, *, num_bytes: int = 32) -> str:
    """The secret `name`, made on first use. Safe when several processes start at once: the first writer wins."""
    folder = data_dir / "secrets"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / name
    if not path.exists():
        draft = folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(num_bytes))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()
