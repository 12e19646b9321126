"""The catalogue's rows of stored models: manifests describe files, rows decide what is offered."""

from __future__ import annotations

import logging
from pathlib import Path

from django.core.exceptions import ValidationError

from chat.catalog.models import ServedModel
from chat.catalog.services import model_register
from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore
from chat.model_store.manifest import Manifest

logger = logging.getLogger(__name__)


def stored_models_offer(*, store: ModelStore) -> None:
    """Enter every stored model that no row has yet; log those that cannot be entered. Raises StoreError."""
    known = set(ServedModel.objects.values_list("path", flat=True))
    for found in store.all():
        if isinstance(found, StoreError):
            logger.warning("%s", found)
        elif str(store.model_path(found.name)) not in known:
            try:
                stored_model_offer(store=store, manifest=found)
            except ValidationError as error:
                logger.warning("The stored model %s is not offered: %s", found.name, " ".join(error.messages))


def stored_model_offer(*, store: ModelStore, manifest: Manifest, name: str = "") -> ServedModel:
    """Enter a stored model under its name, or another one. Raises ValidationError if that leads to another model."""
    path, name = str(store.model_path(manifest.name)), name or manifest.name
    other = ServedModel.objects.filter(name=name).exclude(path=path).first()
    if other is not None and not _is_of_a_moved_store(other.path, path):
        raise ValidationError(f"The catalogue has a model {name!r} at {other.path} already: rename one of the two.")
    return model_register(name=name, path=path, maker_defaults=manifest.description.defaults)


def stored_manifest(*, store: ModelStore, path: str) -> Manifest | None:
    """Return the manifest of the model that the engine loads from `path`, None if it is not stored or unreadable."""
    try:
        name = store.name_of(Path(path))
        return None if name is None else store.get(name)
    except StoreError:
        return None


def _is_of_a_moved_store(old: str, new: str) -> bool:
    """Return True for the place that a stored model had before its store was moved."""
    same = Path(new).parts[-3:]
    return Path(old).parts[-3:] == same and not Path(old).exists()
