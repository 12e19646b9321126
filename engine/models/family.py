"""What a family adds to the shared decoder: its description, and the names of its tensors.

A new family is a file like qwen.py and a line in registry.py (docs/adding-a-model.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.models.config import Activation, LayerConfig, ModelConfig
from engine.models.fields import Fields

ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "gelu_new": Activation.GELU_TANH,
}


def dense_model(fields: Fields, layer: Mapping[str, Any] | None = None, **changes: Any) -> ModelConfig:
    """Describe a decoder whose layers are alike, as Llama's, from the fields that most files share.

    `layer` and `changes` replace values of `LayerConfig` and `ModelConfig`. Raises ModelLoadError.
    """
    shape = fields.attention_shape()
    one = LayerConfig(
        attention=shape, intermediate_size=fields.size("intermediate_size"), activation=activation(fields)
    )
    config = {
        "architecture": fields.architecture,
        "vocab_size": fields.vocab_size,
        "hidden_size": fields.size("hidden_size"),
        "layers": (replace(one, **layer or {}),) * fields.num_layers,
        "max_position": fields.max_position,
        "tied_output": fields.tied_output,
    }
    config |= changes
    if "rotations" not in config:
        config["rotations"] = (fields.rotation(shape.head_size),)
    if "norm_eps" not in config:
        config["norm_eps"] = fields.number("norm_eps")
    return ModelConfig(**config)


def with_windows(
    config: ModelConfig, windows: Sequence[int], rotations: Mapping[bool, int] | None = None
) -> ModelConfig:
    """Give each layer its window. `rotations`: the rotation of layers that have a window, and of those that see all."""
    layers = []
    for layer, window in zip(config.layers, windows, strict=True):
        rotation = layer.rotation if rotations is None else rotations[window > 0]
        shape = replace(layer.attention, window=window if window < config.max_position else 0)
        layers.append(replace(layer, attention=shape, rotation=rotation))
    return replace(config, layers=tuple(layers))


def activation(fields: Fields, default: Activation = Activation.SILU) -> Activation:
    """Read the activation of the feed-forward; GGUF files do not name it."""
    name = "hidden_activation" if fields.get("hidden_activation") is not None else "hidden_act"
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise fields.wrong(name, f"one of {', '.join(ACTIVATIONS)}", value)
    return ACTIVATIONS[value]


@dataclass(frozen=True, slots=True)
class Family:
    """The architectures that one description reads, and how their files differ from the common names."""

    models: str
    """What people call the models that have these architectures."""
    gguf_names: Sequence[str]
    """`general.architecture` in GGUF files."""
    hf_names: Sequence[str]
    """`architectures` in config.json."""
    describe: Callable[[Fields], ModelConfig] = dense_model
    gguf_tensors: Mapping[str, str] = field(default_factory=dict)
    hf_tensors: Mapping[str, str] = field(default_factory=dict)
    """Names of tensors that differ from those of loading/names.py, by our names without the layer. Several of ours
    with one name are stacked in it, in the order of `decoder_tensors`."""
    gguf_adjacent_pairs: bool = False
    hf_adjacent_pairs: bool = False
    """Files hold the rows of q and k with rotated pairs adjacent, not as two halves."""
    hf_defaults: Mapping[str, object] = field(default_factory=dict)
    """Values of keys that a config.json may leave out, where transformers has others than `Fields` or `describe`."""
    hf_without: Sequence[str] = ()
    """Switches of a config.json for what `describe` lacks. The layers of transformers run a model that sets one."""
    hf_unused: Sequence[str] = ()
    """Parts of names of tensors that folders hold, and that are not read."""
    gguf_defaults: Mapping[str, object] = field(default_factory=dict)
    """Values of keys that a GGUF file may leave out, where llama.cpp has others."""
    hf_norm_offset: float = 0.0
    """Added to the weights of norms in folders, as Gemma stores them minus one."""
