"""Qwen 2 and 2.5: biases on queries, keys and values."""

from engine.models.config import FamilyTraits

FAMILY = FamilyTraits(
    gguf_names=("qwen2",),
    hf_names=("Qwen2ForCausalLM",),
    qkv_bias=True,
)
