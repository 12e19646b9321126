"""Small random models of transformers, as references in memory and as saved checkpoints."""

from __future__ import annotations

import torch

SIZES = {
    "vocab_size": 211,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


def random_model(family: str = "Llama", *, seed: int = 0, spread: float | None = None, **changes):
    """Return a random float32 model of a family ("Llama", "Mistral", "Qwen2"); `changes` override SIZES in its config.

    `spread` is the standard deviation of every parameter, norms and biases around 1. A larger spread gives clearer next
    tokens, and an omitted parameter shows. Without it parameters are initialised as transformers does: matrices near 0,
    norms 1, biases 0.
    """
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**SIZES | changes)
    name = family.removesuffix("Text")
    kind = getattr(transformers, f"{name}ForCausalLM", None) or getattr(transformers, f"{name}LMHeadModel")
    model = kind(config).float().eval()
    if spread is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * spread + (parameter.dim() == 1))
            stored, parameters = model.state_dict(), dict(model.named_parameters(remove_duplicate=False))
            for name in stored.keys() - parameters.keys():  # scales of layers
                stored[name].fill_(1 - spread)
    return model
