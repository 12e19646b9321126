"""Remove models: rows of the catalogue, with their files in the store where no other row has them."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from chat.access.configuration import configuration_touch
from chat.audit.services import Subject, audit_record
from chat.catalog.model_choice import NoModel, model_choice
from chat.catalog.models import ServedModel
from chat.catalog.services import model_delete, model_subject
from chat.model_store.folder import ModelStore


class ModelUnknown(ValidationError):
    """There is no model of this name, in the catalogue or in the store."""


def model_remove(*, name: str, store: ModelStore) -> int:
    """Remove a model of the catalogue or the store, or a further name of one; return the bytes of removed files.

    Its files go too, unless another model has them. Raises ModelUnknown, ValidationError for a model that must stay,
    and StoreError if files cannot be removed; the model is gone from the catalogue then.
    """
    with transaction.atomic():
        row = ServedModel.objects.filter(name=name).first()
        if row is None and _further_name_remove(name):
            return 0
        stored = store.name_of(Path(row.path)) if row is not None else name
        if row is None and not store.holds(name):
            raise ModelUnknown(_("There is no model %(name)r.") % {"name": name})
        others = [] if stored is None else _rows_of(stored, store)
        if row is not None:
            removal_check(row=row)
            others = [other for other in others if other.pk != row.pk]
            model_delete(model=row)
        elif others:
            names = ", ".join(other.name for other in others)
            message = _("The files of %(name)r serve the models %(models)s: remove those first.")
            raise ValidationError(message % {"name": name, "models": names})
        else:
            audit_record(action="model.delete", on=Subject(name=name), before={"stored_as": stored})
    return store.remove(stored) if stored is not None and not others and store.holds(stored) else 0


def removal_check(*, row: ServedModel) -> None:
    """Raise ValidationError for a model that must stay: that of the settings, or one with further names."""
    if row.name == first_name():
        message = _("The settings serve %(name)r in any case (LIGHTCONE_MODEL): change them first.")
        raise ValidationError(message % {"name": row.name})
    if row.aliases:
        message = _("The model %(name)r has further names: %(names)s. Delete them first.")
        raise ValidationError(message % {"name": row.name, "names": ", ".join(row.aliases)})


def first_name() -> str | None:
    """Return the name of the model that the settings serve, None if there is none."""
    path, name, store = settings.LIGHTCONE_MODEL, settings.LIGHTCONE_MODEL_NAME, settings.LIGHTCONE_MODEL_STORE
    try:
        return model_choice(path=path, name=name, store=store).name
    except NoModel:
        return None


def _rows_of(stored: str, store: ModelStore) -> list[ServedModel]:
    return [row for row in ServedModel.objects.all() if store.name_of(Path(row.path)) == stored]


def _further_name_remove(name: str) -> bool:
    """Remove a further name of a model; return whether there was one."""
    for model in ServedModel.objects.all():
        if name in model.aliases:
            before = {"aliases": model.aliases}
            model.aliases = [alias for alias in model.aliases if alias != name]
            model.save(update_fields=["aliases"])
            after = {"aliases": model.aliases}
            audit_record(action="model.change", on=model_subject(model), before=before, after=after)
            configuration_touch()
            return True
    return False
