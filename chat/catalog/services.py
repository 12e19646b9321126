"""The catalog of models: add, change, delete, the cached look-up by name that each request makes, and defaults.

A sampling field that a request leaves out gets its value from the first of these sources that has one:
1. the operator's defaults of the model, in the console;
2. the operator's defaults of the installation (`LIGHTCONE_DEFAULT_MAX_TOKENS`);
3. the model's files, or the card of a known model (engine/loading/maker_defaults.py), which the worker reports;
4. neutral values, which change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.access.configuration import TTLCache, configuration_changed, configuration_touch
from chat.access.keys import Caller
from chat.access.limit_columns import RATE_COLUMNS, scope_of
from chat.audit.services import Subject, audit_record
from chat.audit.values import row_values
from chat.catalog.fingerprint import system_fingerprint
from chat.catalog.models import COMPUTED_BY_CHARS, ModelAdapter, ModelState, ServedModel, WeightedAlias
from chat.catalog.weighted_aliases import (
    Targets,
    target_choose,
    weighted_alias_delete,
    weighted_alias_store,
    weighted_aliases,
)
from chat.relay.state.keys import model_slug
from chat.relay.state.meters import Scope, ScopeKind
from engine.api import EngineError
from engine.gguf_pair import text_file

AUDITED = (
    *("name", "aliases", "path", "owned_by", "enabled", "is_default", "max_model_len", "sampling_defaults"),
    *("system_prompt", "chat_template", "pinned", "idle_s", "fallback", "transcriber", "deprecated_at"),
    *RATE_COLUMNS,
)
CACHE_TTL_S = 5.0
ALL = "all"
GGUF_MAGIC = b"GGUF"
NEUTRAL: Mapping[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "max_completion_tokens": None,
}
"""Without a token limit an answer may take the rest of the context."""


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
    system_prompt: str = ""
    chat_template: str = ""
    """In place of the template in the model's files; empty: that."""
    fallback: str = ""
    """The name of the model that answers in its place; empty: none does."""
    transcriber: str = ""
    """The name of the model that writes down sound in its messages; empty: they may have none."""
    deprecated_at: int | None = None
    """Unix seconds."""
    path: str = ""
    modalities: tuple[str, ...] = ()
    """What messages may have beside text: "image", "video"."""
    alias: str = ""
    """The weighted alias that has led here."""
    adapters: tuple[str, ...] = ()
    """The names of its LoRA adapters."""
    adapter: str = ""
    """The adapter that was asked for; empty: the model itself."""
    scope: Scope | None = None
    """Its limits, if it has any."""

    @property
    def full_name(self) -> str:
        """Return the name by which keys are allowed the model with its adapter, and answers name it."""
        return f"{self.name}:{self.adapter}" if self.adapter else self.name


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The enabled models, the default first, and the weighted aliases."""

    entries: tuple[ModelEntry, ...]
    weighted: Mapping[str, Targets]

    def named(self, name: str) -> ModelEntry | None:
        """Return the model of this name or alias, or of `model:adapter`."""
        found = next((entry for entry in self.entries if name == entry.name or name in entry.aliases), None)
        if found is not None or ":" not in name:
            return found
        model, _, adapter = name.rpartition(":")
        base = next((entry for entry in self.entries if model == entry.name or model in entry.aliases), None)
        return replace(base, adapter=adapter) if base is not None and adapter in base.adapters else None


def model_register(
    *,
    name: str,
    path: str,
    aliases: tuple[str, ...] = (),
    owned_by: str = "lightcone",
    make_default: bool = False,
    maker_defaults: Mapping[str, Any] | None = None,
) -> ServedModel:
    """Add the model, or point an existing one of this name to `path`. The first model becomes the default.

    Raises ValidationError, for example if another model's alias has the name.
    """
    with transaction.atomic():
        model = ServedModel.objects.filter(name=name).first() or ServedModel(name=name, owned_by=owned_by)
        model.path = path
        model.aliases = list(aliases) or model.aliases
        model.maker_defaults = model.maker_defaults if maker_defaults is None else dict(maker_defaults)
        model.is_default = make_default or model.is_default or not ServedModel.objects.filter(is_default=True).exists()
        model_update(model=model)
    return model


def model_update(*, model: ServedModel) -> None:
    """Store a new or changed model. A new default replaces the previous one. Raises ValidationError."""
    with transaction.atomic():
        model.full_clean(validate_constraints=False)
        before = ServedModel.objects.filter(pk=model.pk).values(*AUDITED).first()
        if before is None or before["fallback"] != model.fallback:
            fallback_check(model=model)
        if before is None or before["transcriber"] != model.transcriber:
            transcriber_check(model=model)
        if before is not None and before["name"] != model.name:
            _references_follow(name=before["name"], new_name=model.name)
        model_names_check(names=(model.name, *model.aliases), own_pk=model.pk)
        if model.is_default:
            _default_take(ServedModel.objects.filter(is_default=True).exclude(pk=model.pk))
        model.save()
        verb = "create" if before is None else "change"
        after = row_values(model, AUDITED)
        audit_record(action=f"model.{verb}", on=model_subject(model), before=before, after=after)
        configuration_touch()


def _default_take(former: QuerySet[ServedModel]) -> None:
    for model in former:
        before, after = {"is_default": True}, {"is_default": False}
        audit_record(action="model.change", on=model_subject(model), before=before, after=after)
    former.update(is_default=False)


def model_subject(model: ServedModel) -> Subject:
    """Return how the audit log names a model."""
    return Subject(model.pk, model.name)


def model_names_check(*, names: Iterable[str], own_pk: int | None) -> None:
    """Raise ValidationError if a name leads to another model already."""
    taken: dict[str, str] = {}
    for other in ServedModel.objects.exclude(pk=own_pk):
        taken.update(dict.fromkeys((other.name, *other.aliases), other.name))
    weighted = set(WeightedAlias.objects.values_list("name", flat=True))
    adapters = {adapter.full_name for adapter in ModelAdapter.objects.select_related("model")}
    for name in names:
        if name in taken:
            raise ValidationError(
                _("The name %(name)r already leads to the model %(model)r; choose another.")
                % {"name": name, "model": taken[name]}
            )
        if name in weighted:
            raise ValidationError(_("The name %(name)r is a weighted alias; choose another.") % {"name": name})
        if name in adapters:
            raise ValidationError(_("The name %(name)r is that of an adapter; choose another.") % {"name": name})


def fallback_check(*, model: ServedModel) -> None:
    """Raise ValidationError if the fallback of a model is no model, or leads back to it."""
    following = dict(ServedModel.objects.exclude(pk=model.pk).values_list("name", "fallback"))
    name = model.fallback
    if name and name != model.name and name not in following:
        raise ValidationError(_("There is no model %(name)r to fall back to.") % {"name": name})
    seen = {model.name}
    while name:
        if name in seen:
            values = {"fallback": model.fallback, "name": name}
            raise ValidationError(_("The fallback %(fallback)r leads back to %(name)r.") % values)
        seen.add(name)
        name = following.get(name, "")


def transcriber_check(*, model: ServedModel) -> None:
    """Raise ValidationError if the transcriber of a model is no other model. A request finds out what it is for."""
    name = model.transcriber
    if name == model.name and name:
        raise ValidationError(_("A model cannot be its own transcriber; name one that writes down speech."))
    if name and not ServedModel.objects.filter(name=name).exists():
        raise ValidationError(_("There is no model %(name)r to write down sound.") % {"name": name})


def model_path_check(*, path: str) -> None:
    """Raise ValidationError if `path` is no kind of model on this machine; loading checks the rest."""
    place = Path(path)
    if not place.is_absolute():
        raise ValidationError(_("%(path)r must begin with /: write the whole path.") % {"path": path})
    try:
        place = _file_in(place)
        if place.is_dir():
            if not ((place / "config.json").is_file() and any(place.glob("*.safetensors"))):
                raise ValidationError(
                    _("The folder %(path)s is no Hugging Face model: it wants a config.json and *.safetensors files.")
                    % {"path": path}
                )
        elif place.is_file():
            with place.open("rb") as file:
                if file.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
                    raise ValidationError(_("%(path)s is not a GGUF file.") % {"path": path})
        else:
            raise ValidationError(_("There is no file or folder %(path)s on this machine.") % {"path": path})
    except OSError as error:
        values = {"path": path, "problem": error.strerror}
        raise ValidationError(_("%(path)s cannot be read: %(problem)s.") % values) from error


def _file_in(place: Path) -> Path:
    """Return the text model of a folder of GGUF files, or the place itself. Raise ValidationError for several."""
    try:
        return text_file(place)
    except EngineError as error:
        message = _("The folder %(path)s holds several GGUF models: write the path of one file.")
        raise ValidationError(message % {"path": place}) from error


def model_delete(*, model: ServedModel) -> None:
    """Delete a model from the catalogue; fallbacks, transcribers and weighted aliases that lead to it lead nowhere."""
    with transaction.atomic():
        _references_follow(name=model.name, new_name="")
        audit_record(action="model.delete", on=model_subject(model), before=row_values(model, AUDITED))
        model.delete()
        configuration_touch()


def _references_follow(*, name: str, new_name: str) -> None:
    """Let what names a model name it anew, or no more if `new_name` is empty."""
    for field_name in ("fallback", "transcriber"):
        others = ServedModel.objects.filter(**{field_name: name})
        for other in others:
            before, after = {field_name: name}, {field_name: new_name}
            audit_record(action="model.change", on=model_subject(other), before=before, after=after)
        others.update(**{field_name: new_name})
    for alias in WeightedAlias.objects.all():
        if any(one["model"] == name for one in alias.targets):
            named = [one | {"model": new_name} if one["model"] == name else one for one in alias.targets]
            targets = [one for one in named if one["model"]]
            if targets:
                weighted_alias_store(name=alias.name, targets=targets)
            else:
                weighted_alias_delete(name=alias.name)


def model_state_report(
    *,
    name: str,
    state: str,
    reason: str = "",
    max_model_len: int | None = None,
    maker_defaults: dict[str, Any] | None = None,
    computed_by: str = "",
    modalities: list[str] | None = None,
) -> None:
    """Store the state that a worker reports of its model. Ignore unknown names.

    `max_model_len`, `maker_defaults` and `modalities` None, and `computed_by` "", leave those of the previous worker.
    """
    model = ServedModel.objects.filter(name=name).first()
    if model is None:
        return
    model.state = str(ModelState(state))
    model.state_reason = reason[:500]
    model.state_at = timezone.now()
    model.loaded_context = max_model_len or model.loaded_context
    if maker_defaults is not None:
        model.maker_defaults = maker_defaults
    if modalities is not None:
        model.modalities = modalities
    model.computed_by = computed_by[:COMPUTED_BY_CHARS] or model.computed_by
    stored = ("state", "state_reason", "state_at", "loaded_context", "maker_defaults", "modalities", "computed_by")
    model.save(update_fields=stored)
    configuration_touch()


def model_resolve(*, name: str | None, caller: Caller | None = None) -> ModelEntry | None:
    """Return the enabled model of this name or alias, or the default one if `name` is None or empty.

    Returns None if there is no such model or the caller may not use it: both are the same 404.
    """
    return _find(_catalogue(), name, caller)


async def model_resolve_async(*, name: str | None, caller: Caller | None = None) -> ModelEntry | None:
    return _find(await _catalogue_async(), name, caller)


def models_for_caller(*, caller: Caller | None = None) -> list[ModelEntry]:
    """Return the enabled models that the caller may use, the default first, then by name."""
    return [entry for entry in _catalogue().entries if caller is None or caller.can_use_model(entry.name)]


async def models_for_caller_async(*, caller: Caller) -> list[ModelEntry]:
    return [entry for entry in (await _catalogue_async()).entries if caller.can_use_model(entry.name)]


async def adapters_for_caller_async(*, caller: Caller) -> list[tuple[str, ModelEntry]]:
    """Return the full names of the adapters that the caller may use, each with its model."""
    entries = (await _catalogue_async()).entries
    found = [replace(entry, adapter=adapter) for entry in entries for adapter in entry.adapters]
    return [(one.full_name, one) for one in found if caller.can_use_model(one.full_name)]


async def weighted_for_caller_async(*, caller: Caller) -> list[tuple[str, ModelEntry]]:
    """Return the weighted aliases that lead the caller anywhere, each with its weightiest model."""
    catalogue = await _catalogue_async()
    found = []
    for name, targets in sorted(catalogue.weighted.items()):
        for model, _weight in sorted(targets, key=lambda target: -target[1]):
            entry = catalogue.named(model)
            if entry is not None and caller.can_use_model(entry.name):
                found.append((name, entry))
                break
    return found


_cache: TTLCache[Catalogue] = TTLCache(max_entries=1, ttl_s=CACHE_TTL_S)


def models_cache_clear(**_: object) -> None:
    """Empty the cache of models, as a receiver of `configuration_changed`."""
    _cache.clear()


configuration_changed.connect(models_cache_clear, dispatch_uid="chat.catalog.services")


async def _catalogue_async() -> Catalogue:
    """Return the catalogue, using a thread only if it is not in the cache."""
    return _cache.get(ALL) or await database_sync_to_async(_catalogue)()


def _catalogue() -> Catalogue:
    catalogue = _cache.get(ALL)
    if catalogue is None:
        generation = _cache.generation
        rows = ServedModel.objects.filter(enabled=True).order_by("-is_default", "name").prefetch_related("adapters")
        catalogue = Catalogue(tuple(_entry(model) for model in rows), weighted_aliases())
        _cache.put(ALL, catalogue, generation=generation)
    return catalogue


def _entry(model: ServedModel) -> ModelEntry:
    name = f"{ScopeKind.MODEL}:{model_slug(model.name)}"
    scope = scope_of(model, ScopeKind.MODEL, name, f"The model '{model.name}'")
    return ModelEntry(
        name=model.name,
        owned_by=model.owned_by,
        created_at=int(model.created_at.timestamp()),
        fingerprint=system_fingerprint(path=model.path),
        aliases=tuple(model.aliases),
        is_default=model.is_default,
        max_model_len=model.loaded_context or model.max_model_len,
        sampling_defaults=sampling_defaults_merge(of_operator=model.sampling_defaults, of_files=model.maker_defaults),
        system_prompt=model.system_prompt,
        chat_template=model.chat_template,
        fallback=model.fallback,
        transcriber=model.transcriber,
        deprecated_at=int(model.deprecated_at.timestamp()) if model.deprecated_at else None,
        path=model.path,
        modalities=tuple(model.modalities),
        adapters=tuple(adapter.name for adapter in model.adapters.all() if adapter.enabled),
        scope=scope if scope.is_limited else None,
    )


def _find(catalogue: Catalogue, name: str | None, caller: Caller | None) -> ModelEntry | None:
    def is_usable(model: str) -> bool:
        entry = catalogue.named(model)
        return entry is not None and (caller is None or caller.can_use_model(entry.full_name))

    if not name:
        entry = next((entry for entry in catalogue.entries if entry.is_default), None)
    elif (targets := catalogue.weighted.get(name)) is not None:
        chosen = target_choose(targets, is_usable)
        found = catalogue.named(chosen) if chosen is not None else None
        return None if found is None else replace(found, alias=name)
    else:
        entry = catalogue.named(name)
    return entry if entry is not None and is_usable(entry.full_name) else None


def sampling_defaults_merge(*, of_operator: Mapping[str, Any], of_files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that apply to fields left out. None from the operator stands for the neutral value."""
    limit = settings.LIGHTCONE_DEFAULT_MAX_TOKENS
    of_installation = {"max_completion_tokens": limit} if limit else {}
    return {**of_files, **of_installation, **of_operator}


def sampling_defaults_effective(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for each field that has a default. `defaults`: those of a catalog entry."""
    return {name: neutral if defaults.get(name) is None else defaults[name] for name, neutral in NEUTRAL.items()}


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """An enabled model, as far as workers need to know it."""

    name: str
    path: str
    is_pinned: bool
    idle_s: int | None
    max_model_len: int
    """The context to serve; 0: that of the model."""
    adapters: tuple[tuple[str, str], ...] = ()
    """Name and path of each LoRA adapter."""


def models_offered() -> list[ModelOffer]:
    """Return the enabled models by name."""
    rows = ServedModel.objects.filter(enabled=True).order_by("name").prefetch_related("adapters")
    return [
        ModelOffer(
            model.name,
            model.path,
            model.pinned,
            model.idle_s,
            model.max_model_len or 0,
            tuple((adapter.name, adapter.path) for adapter in model.adapters.all() if adapter.enabled),
        )
        for model in rows
    ]


def model_names() -> list[str]:
    """Return the names of all models, enabled or not."""
    return list(ServedModel.objects.order_by("name").values_list("name", flat=True))
