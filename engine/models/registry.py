"""The families of models by architecture name, as files spell it. A new family is one more entry in FAMILIES."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.api.errors import ModelLoadError
from engine.model_kind import HEARING, SEEING, TEXT_MODELS
from engine.models import exaone, gemma, gemma4, glm, granite, llama, olmo, phi, qwen, smollm, starcoder
from engine.models.config import ModelConfig
from engine.models.family import Family
from engine.models.fields import Fields

FAMILIES = (
    llama.LLAMA,
    llama.MISTRAL,
    llama.EXAONE_3,
    qwen.QWEN2,
    qwen.QWEN3,
    exaone.FAMILY,
    gemma.GEMMA2,
    gemma.GEMMA3,
    gemma4.FAMILY,
    glm.FAMILY,
    granite.FAMILY,
    granite.HYBRID,
    granite.WITH_SINKS,
    olmo.FAMILY,
    phi.FAMILY,
    phi.MAKERS_MULTIMODAL,
    smollm.FAMILY,
    starcoder.FAMILY,
)
EMBEDDING = "token_embd.weight"
"""The tensor of GGUF files that shows the size of the vocabulary."""
SECTIONS = "rope.dimension_sections"
"""The key of GGUF files whose model sees images too (GLM-4.1V). Text rotates as in others, but pairs lie as two halves:
llama.cpp's rotation by sections takes no other order."""
GGUF_FAMILIES = {name: family for family in FAMILIES for name in family.gguf_names}
HF_FAMILIES = {name: family for family in FAMILIES for name in family.hf_names}


def architecture_of(values: Mapping[str, object]) -> object:
    """Return the architecture that a config.json names, None if it names none."""
    architectures = values.get("architectures")
    return architectures[0] if isinstance(architectures, list) and architectures else None


LLAMA_DEFAULTS: dict[str, object] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}
"""What folders of LLaVA leave out of a text model, as transformers has it."""
QWEN2_DEFAULTS: dict[str, object] = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}
"""The same of Qwen2-Audio."""
TEXT_DEFAULTS = {"llama": LLAMA_DEFAULTS, "qwen2": QWEN2_DEFAULTS}
"""By `model_type` of the text model."""


def text_architecture(values: Mapping[str, object]) -> object:
    """Return the architecture of the text model that a config.json describes, None if it names none."""
    architecture, text = architecture_of(values), values.get("text_config")
    if architecture not in (*SEEING, *HEARING) or architecture in HF_FAMILIES:
        return architecture
    kind = text.get("model_type", "llama") if isinstance(text, dict) else values.get("model_type")
    return TEXT_MODELS.get(str(kind), architecture)


def with_causal_name(values: dict[str, object]) -> dict[str, object]:
    """Return a config.json in which a family's model without an output (Qwen3Model) has the name of the one with it."""
    architecture = architecture_of(values)
    name = str(architecture).removesuffix("Model") + "ForCausalLM"
    if str(architecture).endswith("Model") and name in HF_FAMILIES:
        return values | {"architectures": [name]}
    return values


def has_family(values: Mapping[str, object]) -> bool:
    """Return True if the architecture of a config.json has a family here, which describes all that the file names."""
    architecture, text = text_architecture(values), values.get("text_config")
    if not isinstance(architecture, str) or architecture not in HF_FAMILIES:
        return False
    parts = (values, text) if isinstance(text, dict) else (values,)
    return not any(part.get(name) for part in parts for name in HF_FAMILIES[architecture].hf_without)


def describe_folder(source: str, values: dict[str, object]) -> tuple[Family, ModelConfig]:
    """Find the family of a config.json and describe its decoder. Raises ModelLoadError."""
    architecture = text_architecture(values)
    family = find_family(source, architecture, HF_FAMILIES)
    text = values.get("text_config")
    if isinstance(text, dict):  # a model with a tower, of which the text part is served
        text = TEXT_DEFAULTS.get(str(text.get("model_type", "llama")), {}) | text
        values = values | text | {name: values[name] for name in ("tie_word_embeddings",) if name in values}
    fields = Fields(source, {**family.hf_defaults, **values}, architecture=str(architecture))
    return family, family.describe(fields).check(source)


def describe_gguf(
    source: str, metadata: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Family, ModelConfig]:
    """Find the family of a GGUF file and describe its decoder. `shapes`: of its tensors. Raises ModelLoadError."""
    architecture = metadata.get("general.architecture")
    family = find_family(source, architecture, GGUF_FAMILIES)
    if EMBEDDING not in shapes:
        raise ModelLoadError(f"{source}: tensor {EMBEDDING!r} is missing")
    fields = Fields(
        source,
        {**family.gguf_defaults, **{key.removeprefix(f"{architecture}."): value for key, value in metadata.items()}},
        architecture=str(architecture),
        is_gguf=True,
        vocab_size=shapes[EMBEDDING][0],
        tensors=shapes.keys(),
    )
    if SECTIONS in fields.values:
        family = replace(family, gguf_adjacent_pairs=False)
    return family, family.describe(fields).check(source)


def find_family(source: str, architecture: object, families: dict[str, Family]) -> Family:
    """Return the family of an architecture. Raises ModelLoadError that lists the supported ones."""
    if not isinstance(architecture, str) or architecture not in families:
        shown = str(architecture)[:80]
        raise ModelLoadError(
            f"{source}: the architecture {shown!r} cannot be served; supported are {', '.join(sorted(families))}. "
            "Its Hugging Face folder may be, by the layers of transformers (docs/models.md)"
        )
    return families[architecture]
