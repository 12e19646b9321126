"""The description of each kind of projector."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.gguf_pair import Projector
from engine.models.projectors.described import Described, ProjectorFields
from engine.models.projectors.internvl import describe_internvl
from engine.models.projectors.pixtral import describe_pixtral
from engine.models.projectors.qwen import describe_qwen2, describe_qwen2_5, describe_qwen3
from engine.models.projectors.siglip import describe_gemma3, describe_idefics3, describe_llava

DESCRIBED_BY: dict[str, Callable[[ProjectorFields], Described]] = {
    "mlp": describe_llava,
    "idefics3": describe_idefics3,
    "gemma3": describe_gemma3,
    "qwen2vl_merger": describe_qwen2,
    "qwen2.5vl_merger": describe_qwen2_5,
    "qwen3vl_merger": describe_qwen3,
    "internvl": describe_internvl,
    "pixtral": describe_pixtral,
}
"""By `clip.projector_type`; engine/gguf_pair.py says what each goes with."""


def describe_projector(projector: Projector, text: Mapping[str, object]) -> Described:
    """Describe a pair. `text`: the metadata of the text model's file. Raises ModelLoadError."""
    return DESCRIBED_BY[projector.type](ProjectorFields(projector, text))
