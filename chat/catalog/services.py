"""The catalog of models: add, change, delete, and the cached look-up by name that each request makes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from channels.db import database_sync_to_async
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from chat.access.configuration import configuration_changed, configuration_touch
from chat.access.keys import Caller
from chat.access.ttl_cache import TTLCache
from chat.catalog.fingerprint import system_fingerprint
from chat.catalog.generation_defaults import sampling_defaults_merge
from chat.catalog.models import ModelState, ServedModel

CACHE_TTL_S = 5.0
ALL = "all"
GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """An enabled model, as far as requests need to know it."""

    name: str
    owned_by: str
    created_at: int
    """Unix seconds."""
    fingerprint: str = ""
    """Changes with what is served."""
    aliases: tuple[str, ...] = ()
    is_default: bool = False
    max_model_len: int | None = None
    sampling_defaults: dict[str, Any] = field(default_factory=dict)
    """Values for fields that a request leaves out (`generation_defaults.py`)."""


def model_register(
    *, name: str, path: str, aliases: tuple[str, ...] = (), owned_by: str = "lightcone", make_default: bool = False
) -> ServedModel:
    """Add the model, or point an existing one of this name to `path`. The first model becomes the default.

    Raises ValidationError, for example if another model's alias has the name.
    """
    with transaction.atomic():
        model = ServedModel.objects.filter(name=name).first() or ServedModel(name=name, owned_by=owned_by)
        model.path = path
        model.aliases = list(aliases) or model.aliases
        model.is_default = make_default or model.is_default or not ServedModel.objects.filter(is_default=True).exists()
        model_update(model=model)
    return model


def model_update(*, model: ServedModel) -> None:
    """Store a new or changed model. A new default replaces the previous one. Raises ValidationError."""
    with transaction.atomic():
        model.full_clean(validate_constraints=False)
        model_names_check(names=(model.name, *model.aliases), own_pk=model.pk)
        if model.is_default:
            ServedModel.objects.filter(is_default=True).exclude(pk=model.pk).update(is_default=False)
        model.save()
        configuration_touch()


def model_names_check(*, names: Iterable[str], own_pk: int | None) -> None:
    """Raise ValidationError if a name or alias leads to another model already."""
    taken: dict[str, str] = {}
    for other in ServedModel.objects.exclude(pk=own_pk):
        taken.update(dict.fromkeys((other.name, *other.aliases), other.name))
    for name in names:
        if name in taken:
            raise ValidationError(f"The name {name!r} already leads to the model {taken[name]!r}; choose another.")


def model_path_check(*, path: str) -> None:
    """Raise ValidationError if this machine has no model at `path`.

    It looks at the kind of file or folder; loading checks the rest. Do not use it for models of other machines, whose
    files only their workers see.
    """
    place = Path(path)
    try:
        if not place.is_absolute():
            problem = f"{path!r} must begin with /: write the whole path."
        elif place.is_dir():
            is_model = (place / "config.json").is_file() and any(place.glob("*.safetensors"))
            problem = (
                ""
                if is_model
                else f"The folder {path} is no Hugging Face model: it wants a config.json and *.safetensors files."
            )
        elif place.is_file():
            with place.open("rb") as file:
                problem = "" if file.read(len(GGUF_MAGIC)) == GGUF_MAGIC else f"{path} is not a GGUF file."
        else:
            problem = f"There is no file or folder {path} on this machine."
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}."
    if problem:
        raise ValidationError(problem)


def model_delete(*, model: ServedModel) -> None:
    model.delete()
    configuration_touch()


def model_state_report(
    *,
    name: str,
    state: str,
    reason: str = "",
    max_model_len: int | None = None,
    maker_defaults: dict[str, Any] | None = None,
) -> None:
    """Store the state that a worker reports of its model. Ignore unknown names.

    `max_model_len` is stored if none is set. `maker_defaults` None leaves those of the previous worker.
    """
    model = ServedModel.objects.filter(name=name).first()
    if model is None:
        return
    model.state = str(ModelState(state))
    model.state_reason = reason[:500]
    model.state_at = timezone.now()
    model.max_model_len = model.max_model_len or max_model_len
    if maker_defaults is not None:
        model.maker_defaults = maker_defaults
    model.save(update_fields=["state", "state_reason", "state_at", "max_model_len", "maker_defaults"])
    configuration_touch()


def model_resolve(*, name: str | None, caller: Caller | None = None) -> ModelEntry | None:
    """Return the enabled model of this name or alias, or the default one if `name` is None or empty.

    Returns None if there is no such model or the caller may not use it: both are the same 404.
    """
    return _find(_entries(), name, caller)


async def model_resolve_async(*, name: str | None, caller: Caller | None = None) -> ModelEntry | None:
    """Do as `model_resolve`, using a thread only if the catalog is not in the cache."""
    return _find(_cache.get(ALL) or await database_sync_to_async(_entries)(), name, caller)


def models_for_caller(*, caller: Caller | None = None) -> list[ModelEntry]:
    """Return the enabled models that the caller may use, the default first, then by name."""
    return [entry for entry in _entries() if caller is None or caller.can_use_model(entry.name)]


async def models_for_caller_async(*, caller: Caller | None = None) -> list[ModelEntry]:
    entries = _cache.get(ALL) or await database_sync_to_async(_entries)()
    return [entry for entry in entries if caller is None or caller.can_use_model(entry.name)]


def models_cache_clear() -> None:
    _cache.clear()


_cache: TTLCache[tuple[ModelEntry, ...]] = TTLCache(max_entries=1, ttl_s=CACHE_TTL_S)


def _forget_models(**_: object) -> None:
    models_cache_clear()


configuration_changed.connect(_forget_models, dispatch_uid="chat.catalog.services")


def _entries() -> tuple[ModelEntry, ...]:
    entries = _cache.get(ALL)
    if entries is None:
        generation = _cache.generation
        entries = tuple(
            _entry(model) for model in ServedModel.objects.filter(enabled=True).order_by("-is_default", "name")
        )
        _cache.put(ALL, entries, generation=generation)
    return entries


def _entry(model: ServedModel) -> ModelEntry:
    return ModelEntry(
        name=model.name,
        owned_by=model.owned_by,
        created_at=int(model.created_at.timestamp()),
        fingerprint=system_fingerprint(path=model.path),
        aliases=tuple(model.aliases),
        is_default=model.is_default,
        max_model_len=model.max_model_len,
        sampling_defaults=sampling_defaults_merge(of_operator=model.sampling_defaults, of_files=model.maker_defaults),
    )


def _find(entries: tuple[ModelEntry, ...], name: str | None, caller: Caller | None) -> ModelEntry | None:
    for entry in entries:
        if (name == entry.name or name in entry.aliases) if name else entry.is_default:
            return entry if caller is None or caller.can_use_model(entry.name) else None
    return None


def model_names() -> list[str]:
    """Return the names of all models, enabled or not."""
    return list(ServedModel.objects.order_by("name").values_list("name", flat=True))
