"""The families of models by architecture name, as files spell it. A new family is one more entry in FAMILIES."""

from __future__ import annotations

from engine.api.errors import ModelLoadError
from engine.models import llama, qwen
from engine.models.config import FamilyTraits

FAMILIES = (llama.FAMILY, qwen.FAMILY)
GGUF_FAMILIES = {name: family for family in FAMILIES for name in family.gguf_names}
HF_FAMILIES = {name: family for family in FAMILIES for name in family.hf_names}


def find_family(source: str, architecture: object, families: dict[str, FamilyTraits]) -> FamilyTraits:
    """Return the family of an architecture. Raises ModelLoadError that lists the supported ones."""
    if not isinstance(architecture, str) or architecture not in families:
        shown = str(architecture)[:80]
        raise ModelLoadError(
            f"{source}: the architecture {shown!r} cannot be served; supported are {', '.join(sorted(families))}"
        )
    return families[architecture]
