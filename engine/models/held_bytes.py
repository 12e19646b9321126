"""The bytes that a decoder's weights take once `DecoderBuilder` has built it, from the outlines of its matrices.

Asked before a model is read (engine.core.memory_need). Follows the builder: which matrices are stacked decides how they
are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from engine.models.config import LayerConfig, ModelConfig
from engine.models.decoder import OPTIONAL, decoder_tensors, layer_tensors, stacked_names
from engine.quantization.scheme import WeightScheme
from engine.quantization.stored import StoredMatrix

Outline = Callable[[str, tuple[int, int]], StoredMatrix]
"""From our name of a tensor and its shape to the matrix as stored, of which the data may be missing."""


def decoder_bytes(config: ModelConfig, outline: Outline, scheme: WeightScheme) -> int:
    """Return the bytes of all weights. An embedding that the output shares is counted once."""
    shape = (config.vocab_size, config.hidden_size)
    table = outline("embedding", shape)
    num_bytes = table_bytes(table, scheme)
    if not config.tied_output:
        num_bytes += scheme.held_bytes(outline("output", shape))
    elif not scheme.is_fixed:
        num_bytes += scheme.held_bytes(table)
    if config.input_size:
        num_bytes += outline("input_embedding", (config.input_vocab_size, config.input_size)).num_bytes
        num_bytes += scheme.held_bytes(outline("input_projection", (config.input_size, config.hidden_size)))
    for number, layer in enumerate(config.layers):
        shapes = layer_tensors(layer, config.hidden_size, ())
        for names in stacks(layer):
            found = [outline(f"layers.{number}.{name}", (shapes[name][0], shapes[name][1])) for name in names]
            num_bytes += scheme.held_bytes(StoredMatrix.stack(found))
    vectors = (shape for name, shape in decoder_tensors(config) if len(shape) == 1 and name not in OPTIONAL)
    return num_bytes + scheme.activation_dtype.itemsize * sum(map(prod, vectors))


def table_bytes(table: StoredMatrix, scheme: WeightScheme) -> int:
    """Return the bytes of an embedding table."""
    return table.num_bytes if scheme.keeps_stored(table) else prod(table.shape) * scheme.table_dtype.itemsize


def stacks(layer: LayerConfig) -> Iterator[tuple[str, ...]]:
    """Yield the matrices of a layer that make one linear layer each."""
    yield stacked_names(layer)
    yield ("o",)
    yield ("gate", "up") if layer.is_gated else ("up",)
    yield ("down",)
    if layer.input_size:
        yield ("input_gate",)
        yield ("input_up",)
