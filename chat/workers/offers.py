"""The models that a worker host may load: those that the catalogue offers and this machine has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import close_old_connections

from chat.catalog.services import ModelOffer, models_offered
from engine.config import EngineConfig


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that this host may load. `idle_s`: seconds without a request after which it is unloaded; 0: never."""

    config: EngineConfig
    is_pinned: bool = False
    idle_s: float = 0.0
    adapters: tuple[tuple[str, str], ...] = ()
    """Name and path of each LoRA adapter."""

    @property
    def name(self) -> str:
        return self.config.model_name


def offers_read(first: EngineConfig) -> list[Offer]:
    """Return the offers by the catalogue, `first` foremost: the model of the settings, offered in any case.

    Raises django.db.Error.
    """
    close_old_connections()
    try:
        rows = models_offered()
    finally:
        close_old_connections()
    return offers_of(rows, first, hosted=settings.LIGHTCONE_HOST_MODELS, idle_s=settings.LIGHTCONE_MODEL_IDLE_S)


def offers_of(rows: Iterable[ModelOffer], first: EngineConfig, *, hosted: list[str], idle_s: float) -> list[Offer]:
    """Return `first` and the rows whose files are here, of the names in `hosted` alone if there are any."""
    first_offer, others = Offer(first, idle_s=idle_s), []
    for row in rows:
        is_first = row.name == first.model_name
        if not is_first and ((hosted and row.name not in hosted) or not _is_here(row.path)):
            continue
        offer = Offer(
            dataclasses.replace(
                first,
                model_name=row.name,
                model_path=first.model_path if is_first else Path(row.path),
                # The settings of context and formats are for the first model; others may have less, or others.
                max_model_len=row.max_model_len or (first.max_model_len if is_first else 0),
                tool_parser=first.tool_parser if is_first else "auto",
                reasoning_parser=first.reasoning_parser if is_first else "auto",
                # A file each would take the disk once for each model.
                kv_spill_bytes=first.kv_spill_bytes if is_first else 0,
            ),
            row.is_pinned,
            idle_s if row.idle_s is None else float(row.idle_s),
            row.adapters,
        )
        if is_first:
            first_offer = offer
        else:
            others.append(offer)
    return [first_offer, *others]


def _is_here(path: str) -> bool:
    """Return True for files of this machine that this process may see."""
    try:
        return Path(path).exists()
    except OSError:
        return False
