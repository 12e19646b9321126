"""Names that lead to one of several models by weight, as for a canary: change, delete, choose."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from chat.access.configuration import configuration_touch
from chat.audit.services import Subject, audit_record
from chat.catalog.models import ModelAdapter, ServedModel, WeightedAlias

MAX_TARGETS = 20
MAX_WEIGHT = 1000

Targets = tuple[tuple[str, int], ...]
_random = random.SystemRandom()


def weighted_alias_set(*, name: str, targets: Sequence[Mapping[str, Any]]) -> WeightedAlias:
    """Let a name lead to these models by their weights. Raises ValidationError."""
    with transaction.atomic():
        targets_check(targets=targets)
        name_check(name)
        return weighted_alias_store(name=name, targets=targets)


@transaction.atomic
def weighted_alias_store(*, name: str, targets: Sequence[Mapping[str, Any]]) -> WeightedAlias:
    """Store targets that have been checked."""
    stored = WeightedAlias.objects.filter(name=name).first()
    alias, is_new = WeightedAlias.objects.update_or_create(
        name=name, defaults={"targets": [{"model": one["model"], "weight": one["weight"]} for one in targets]}
    )
    verb = "create" if is_new else "change"
    before = None if stored is None else {"targets": stored.targets}
    audit_record(action=f"alias.{verb}", on=Subject(alias.pk, name), before=before, after={"targets": alias.targets})
    configuration_touch()
    return alias


@transaction.atomic
def weighted_alias_delete(*, name: str) -> bool:
    """Delete a weighted alias; return whether there was one."""
    alias = WeightedAlias.objects.filter(name=name).first()
    if alias is None:
        return False
    audit_record(action="alias.delete", on=Subject(alias.pk, name), before={"targets": alias.targets})
    alias.delete()
    configuration_touch()
    return True


def targets_check(*, targets: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValidationError unless the targets are 1 to 20 different models, each with a weight from 1 to 1000."""
    if not 1 <= len(targets) <= MAX_TARGETS:
        raise ValidationError(_("Name 1 to %(most)s models, each with a weight.") % {"most": MAX_TARGETS})
    known = set(ServedModel.objects.values_list("name", flat=True))
    seen: set[str] = set()
    for one in targets:
        model, weight = one.get("model"), one.get("weight")
        if further := set(one) - {"model", "weight"}:
            raise ValidationError(
                _("A target has `model` and `weight` alone, not %(field)r.") % {"field": min(map(str, further))}
            )
        if not isinstance(model, str) or model not in known:
            raise ValidationError(_("There is no model %(model)r in the catalogue.") % {"model": model})
        if model in seen:
            raise ValidationError(_("The model %(model)r stands twice: add up its weights.") % {"model": model})
        if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
            values = {"model": model, "most": MAX_WEIGHT, "weight": weight}
            raise ValidationError(_("The weight of %(model)r must be from 1 to %(most)s, got %(weight)r.") % values)
        seen.add(str(model))


def weighted_aliases() -> dict[str, Targets]:
    """Return the targets of every weighted alias."""
    return {
        alias.name: tuple((one["model"], one["weight"]) for one in alias.targets)
        for alias in WeightedAlias.objects.all()
    }


def target_choose(
    targets: Targets, is_usable: Callable[[str], bool], *, chance: Callable[[], float] = _random.random
) -> str | None:
    """Return one of the usable targets, each as often as its weight says; None if there is none."""
    usable = [(model, weight) for model, weight in targets if is_usable(model)]
    left = chance() * sum(weight for _, weight in usable)
    for model, weight in usable:
        left -= weight
        if left < 0:
            return model
    return usable[-1][0] if usable else None


def name_check(name: str) -> None:
    """Raise ValidationError for a name that leads to a model already."""
    if not 0 < len(name) <= 200:
        raise ValidationError(_("A name must have 1 to 200 characters."))
    for model in ServedModel.objects.all():
        if name in (model.name, *model.aliases):
            raise ValidationError(
                _("The name %(name)r already leads to the model %(model)r; choose another.")
                % {"name": name, "model": model.name}
            )
    if any(name == adapter.full_name for adapter in ModelAdapter.objects.select_related("model")):
        raise ValidationError(_("The name %(name)r is that of an adapter; choose another.") % {"name": name})
