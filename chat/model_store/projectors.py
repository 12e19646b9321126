"""Projectors: GGUF files that go with a text model's, for its images. The store keeps one beside it, if it fits."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from engine.api import EngineError
from engine.gguf_pair import MARK, SeveralProjectors, find_projector

logger = logging.getLogger(__name__)

PREFERRED = ("F16", "BF16", "Q8_0", "F32")
"""Formats, best first: halves lose nothing that counts, and eight bits little."""


def projector_among(names: Iterable[str]) -> str | None:
    """Return the projector to take of several files of a repository, by their names; None if there is none."""
    found = sorted(name for name in names if name.lower().endswith(".gguf") and MARK in name.lower())

    def rank(name: str) -> int:
        stem = name[: -len(".gguf")].upper().replace("-", "_").replace(".", "_")
        return next((place for place, kind in enumerate(PREFERRED) if stem.endswith(f"_{kind}")), len(PREFERRED))

    return min(found, key=rank, default=None)


def projector_beside(path: Path) -> tuple[Path | None, str]:
    """Return the projector that fits the model at `path`, of several the first of PREFERRED; else None and why."""
    try:
        found = find_projector(path)
    except SeveralProjectors as error:
        return path.parent / str(projector_among(error.names)), ""
    except EngineError as error:
        logger.warning("A model is taken without a projector: %s", error.message)
        return None, error.message
    return (None if found is None else found.path), ""


def drop_unfitting(path: Path) -> set[str]:
    """Remove projectors that do not fit the only model of a folder, and return their names: it then reads text."""
    if not path.is_file():
        return set()
    kept, _ = projector_beside(path)
    others = [file for file in path.parent.iterdir() if MARK in file.name.lower() and file != kept]
    for file in others:
        file.unlink()
    return {file.name for file in others}
