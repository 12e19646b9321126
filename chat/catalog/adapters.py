"""The LoRA adapters of models: add, change, delete. Workers load them while their model is served."""

from __future__ import annotations

import re
from pathlib import Path

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from chat.access.configuration import configuration_touch
from chat.audit.services import Subject, audit_record
from chat.audit.values import row_values
from chat.catalog.models import ModelAdapter, ServedModel, WeightedAlias

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MAX_NAME_CHARS = 100
AUDITED = ("name", "path", "enabled", "model_id")
FILES = ("adapter_config.json", "adapter_model.safetensors")
"""Of a folder as PEFT saves it."""


def adapter_set(*, model: ServedModel, name: str, path: str, is_elsewhere: bool = False) -> ModelAdapter:
    """Add an adapter to a model, or let one of this name have other files. Raises ValidationError."""
    adapter_check(model=model, name=name, path="" if is_elsewhere else path)
    adapter = ModelAdapter.objects.filter(model=model, name=name).first() or ModelAdapter(model=model, name=name)
    adapter.path = path
    adapter_save(adapter=adapter)
    return adapter


@transaction.atomic
def adapter_save(*, adapter: ModelAdapter) -> None:
    """Store a checked adapter."""
    before = ModelAdapter.objects.filter(pk=adapter.pk).values(*AUDITED).first()
    adapter.save()
    verb, after = "create" if before is None else "change", row_values(adapter, AUDITED)
    audit_record(action=f"adapter.{verb}", on=_subject(adapter), before=before, after=after)
    configuration_touch()


@transaction.atomic
def adapter_delete(*, adapter: ModelAdapter) -> None:
    audit_record(action="adapter.delete", on=_subject(adapter), before=row_values(adapter, AUDITED))
    adapter.delete()
    configuration_touch()


def _subject(adapter: ModelAdapter) -> Subject:
    return Subject(adapter.pk, adapter.full_name)


def adapter_check(*, model: ServedModel, name: str, path: str) -> None:
    """Raise ValidationError for an adapter that cannot be: its name, what else has it, or its folder, if any."""
    if len(name) > MAX_NAME_CHARS or not NAME.fullmatch(name):
        values = {"name": name[:MAX_NAME_CHARS], "most": MAX_NAME_CHARS}
        raise ValidationError(
            _("%(name)r cannot be an adapter's name: use letters, digits, '.', '_' and '-', %(most)s at most.") % values
        )
    full_name = f"{model.name}:{name}"
    for other in ServedModel.objects.all():
        if full_name in (other.name, *other.aliases):
            raise ValidationError(
                _("The name %(name)r already leads to the model %(model)r; choose another.")
                % {"name": full_name, "model": other.name}
            )
    if WeightedAlias.objects.filter(name=full_name).exists():
        raise ValidationError(_("The name %(name)r is a weighted alias; choose another.") % {"name": full_name})
    if path:
        adapter_path_check(path=path)


def adapter_path_check(*, path: str) -> None:
    """Raise ValidationError if a path is no folder of an adapter on this machine; loading checks the rest."""
    folder = Path(path)
    if not folder.is_absolute():
        raise ValidationError(_("%(path)r must begin with /: write the whole path.") % {"path": path})
    try:
        missing = [name for name in FILES if not (folder / name).is_file()]
    except OSError as error:
        values = {"path": path, "problem": error.strerror}
        raise ValidationError(_("%(path)s cannot be read: %(problem)s.") % values) from error
    if missing:
        message = _("The folder %(path)s is no LoRA adapter of PEFT: it has no %(files)s.")
        raise ValidationError(message % {"path": path, "files": ", ".join(missing)})
