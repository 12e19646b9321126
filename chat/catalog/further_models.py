"""Changes of the catalogue by clients: further names of a model, and models of the same files.

All raise ValidationError for what the catalogue cannot hold. Whether the caller may make them is checked before.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from chat.catalog.models import ServedModel
from chat.catalog.prices import prices_copy
from chat.catalog.services import model_update


def model_name_add(*, name: str, further: str) -> None:
    """Give the model called `name` a further name, by which clients may ask for it. Nothing happens if it has that."""
    with transaction.atomic():
        model = ServedModel.objects.select_for_update().get(name=name)
        if further not in (model.name, *model.aliases):
            model.aliases = [*model.aliases, further]
            model_update(model=model)


def model_derive(
    *,
    source: str,
    name: str,
    sampling_defaults: dict[str, Any],
    context: int | None = None,
    system_prompt: str = "",
    chat_template: str = "",
) -> ServedModel:
    """Add a model with the files of another and its prices, and with what is given in place of the other's.

    `context`: in tokens. A model of these files that has the name already gets these values instead.
    """
    with transaction.atomic():
        base = ServedModel.objects.get(name=source)
        model = ServedModel.objects.filter(name=name).first()
        if model is not None and (model.path != base.path or model.pk == base.pk):
            raise ValidationError(f"The name {name!r} already leads to another model; choose another.")
        is_new = model is None
        model = model or ServedModel(
            name=name,
            path=base.path,
            owned_by=base.owned_by,
            maker_defaults=base.maker_defaults,
        )
        model.sampling_defaults = {**base.sampling_defaults, **sampling_defaults}
        model.max_model_len = context or base.max_model_len
        model.system_prompt = system_prompt or base.system_prompt
        model.chat_template = chat_template or base.chat_template
        model_update(model=model)
        if is_new:
            prices_copy(source=base, target=model)
    return model
