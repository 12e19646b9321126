"""Llama 2 and 3, SmolLM2 and Mistral: the shared decoder as it stands."""

from engine.models.config import FamilyTraits

FAMILY = FamilyTraits(
    gguf_names=("llama",),
    hf_names=("LlamaForCausalLM", "MistralForCausalLM"),
    gguf_adjacent_pairs=True,
)
