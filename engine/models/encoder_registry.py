"""The families of encoders by architecture name, as config.json spells it. A new family is one more entry."""

from __future__ import annotations

from collections.abc import Mapping

from engine.api.errors import ModelLoadError
from engine.models import bert, gguf_encoders, modernbert, nomic_bert
from engine.models.encoder_config import EncoderConfig, EncoderFamily, ScoreHead
from engine.models.fields import Fields
from engine.models.registry import architecture_of

ENCODER_FAMILIES = (bert.BERT, bert.ROBERTA, bert.MPNET, nomic_bert.FAMILY, modernbert.FAMILY)
BY_NAME = {name: family for family in ENCODER_FAMILIES for name in (*family.hf_names, *family.scorer_names)}


DescribedEncoder = tuple[EncoderFamily, EncoderConfig, ScoreHead | None]
"""A family, the description of a model, and the head of a reranker."""


def describe_encoder(source: str, values: dict[str, object]) -> DescribedEncoder:
    """Find the family of a config.json, describe its encoder and the head of a reranker. Raises ModelLoadError."""
    architecture = architecture_of(values)
    family = BY_NAME.get(architecture) if isinstance(architecture, str) else None
    if family is None:
        shown = str(architecture)[:80]
        raise ModelLoadError(
            f"{source}: the encoder {shown!r} cannot be served; supported are {', '.join(sorted(BY_NAME))}"
        )
    fields = Fields(source, values, architecture=str(architecture))
    config = family.describe(fields).check(source)
    is_scorer = architecture in family.scorer_names and family.head is not None
    return family, config, family.head(fields) if is_scorer and family.head is not None else None


def describe_gguf_encoder(
    source: str, metadata: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]], *, is_scorer: bool
) -> DescribedEncoder:
    """Describe the encoder of a GGUF file. `shapes`: of its tensors. Raises ModelLoadError."""
    architecture = str(metadata.get("general.architecture"))
    values = {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()}
    fields = Fields(source, values, architecture=architecture, is_gguf=True, tensors=shapes.keys())
    config = gguf_encoders.describe(fields, shapes).check(source)
    return gguf_encoders.FAMILY, config, gguf_encoders.HEAD if is_scorer else None
