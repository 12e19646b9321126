"""The decoder that all families share: embedding, layers, final norm, vocabulary projection.

Built from a checkpoint and a weight scheme; called by the runner with the tokens of one step, of any sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import torch

from engine.attention.backend import StepAttention
from engine.layers.activation import silu_and_multiply
from engine.layers.attention import Attention
from engine.layers.embedding import Embedding, OpenEmbedding, StoredEmbedding
from engine.layers.linear import Linear
from engine.layers.norm import RmsNorm
from engine.layers.rotary import RotaryTable
from engine.models.config import ModelConfig
from engine.quantization.scheme import WeightScheme
from engine.quantization.stored import StoredMatrix

MAX_BUILDERS = 4
"""Layers that are loaded at once: each takes a few times its size in float32."""


class Checkpoint(Protocol):
    """A source of a model's tensors under our names; q and k rows have rotated pairs adjacent.

    Names: embedding, output, final_norm, frequency_factors, and `layers.<i>.` attention_norm, q, k, v, o, mlp_norm,
    gate, up, down;
    a bias is called `<name>_bias`. Several threads read at once. A missing tensor or another shape raises
    ModelLoadError with the file's and the tensor's name.
    """

    def has(self, name: str) -> bool: ...

    def matrix(self, name: str, shape: tuple[int, int]) -> StoredMatrix: ...

    def vector(self, name: str, size: int) -> torch.Tensor:
        """float32 (size,)."""
        ...


def decoder_tensors(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of every tensor that a checkpoint must have; only `frequency_factors` may be absent."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query, kv = config.num_heads * config.head_size, config.num_kv_heads * config.head_size
    yield "embedding", (config.vocab_size, hidden)
    yield "frequency_factors", (config.head_size // 2,)
    if not config.tied_output:
        yield "output", (config.vocab_size, hidden)
    yield "final_norm", (hidden,)
    matrices = {"q": (query, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, query)}
    biases = {f"{name}_bias": (matrices[name][0],) for name in ("q", "k", "v") if config.qkv_bias}
    biases |= {"o_bias": (hidden,)} if config.output_bias else {}
    feed_forward = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    for layer in range(config.num_layers):
        for name, shape in {
            "attention_norm": (hidden,),
            **matrices,
            **biases,
            "mlp_norm": (hidden,),
            **feed_forward,
        }.items():
            yield f"layers.{layer}.{name}", shape


class DecoderLayer:
    """Attention, then feed-forward, each after a norm and added to the residual stream."""

    def __init__(
        self, attention_norm: RmsNorm, attention: Attention, mlp_norm: RmsNorm, gate_up: Linear, down: Linear
    ) -> None:
        self._attention_norm = attention_norm
        self._attention = attention
        self._mlp_norm = mlp_norm
        self._gate_up = gate_up
        self._down = down

    def __call__(
        self, hidden: torch.Tensor, delta: torch.Tensor | None, rotations: torch.Tensor, attention: StepAttention
    ) -> torch.Tensor:
        """Add `delta`, the output of the layer before, to the residual stream in place; return this layer's output.

        All are (T, E).
        """
        num_rows = hidden.shape[0]
        normed = self._attention_norm(hidden, delta, self._attention.input_dtype(num_rows))
        normed = self._mlp_norm(
            hidden, self._attention(normed, rotations, attention), self._gate_up.input_dtype(num_rows)
        )
        return self._down(silu_and_multiply(self._gate_up(normed), self._down.input_dtype(num_rows)))


class Decoder:
    """A model that is ready to run."""

    def __init__(
        self, embedding: Embedding, rotary: RotaryTable, layers: list[DecoderLayer], final_norm: RmsNorm, output: Linear
    ) -> None:
        self._embedding = embedding
        self._rotary = rotary
        self._layers = layers
        self._final_norm = final_norm
        self._output = output

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, attention: StepAttention) -> torch.Tensor:
        """Run the layers. token_ids, positions: (T,) int64  ->  hidden (T, E), before the final norm."""
        hidden, rotations = self.begin(token_ids, positions)
        return hidden.add_(self.run_layers(hidden, rotations, attention))

    def begin(self, token_ids: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Look up the inputs of the layers: the residual stream (T, E), which they change, and the rotations (T, 1,
        D/2).
        """
        return self._embedding(token_ids), self._rotary.at(positions)

    def run_layers(self, hidden: torch.Tensor, rotations: torch.Tensor, attention: StepAttention) -> torch.Tensor:
        """Run the layers over `begin`'s rows; return the last layer's output (T, E), not yet added to `hidden`."""
        delta = None
        for layer in self._layers:
            delta = layer(hidden, delta, rotations, attention)
        return torch.zeros_like(hidden) if delta is None else delta

    @torch.inference_mode()
    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalise rows whose hidden states are requested. hidden: (R, E)  ->  (R, E) float32."""
        return self._final_norm(hidden, None, torch.float32)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalise and project the rows that sample. hidden: (R, E)  ->  (R, V) float32."""
        return self._output(self._final_norm(hidden, None, self._output.input_dtype(hidden.shape[0]))).float()


class DecoderBuilder:
    """A builder that converts the tensors of a checkpoint to weight forms and assembles the decoder."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, scheme: WeightScheme, device: torch.device) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._scheme = scheme
        self._device = device

    def build(self, num_positions: int, progress: Callable[[float], None]) -> Decoder:
        """Load layers in parallel, each on one thread: faster than many threads on one small tensor, above all on a
        busy machine.

        Calls `progress` with the fraction done.
        """
        num_threads = torch.get_num_threads()
        num_parts = self._config.num_layers + 1
        pool = ThreadPoolExecutor(min(num_threads, MAX_BUILDERS), initializer=torch.set_num_threads, initargs=(1,))
        try:
            ends = pool.submit(self._ends, num_positions)
            layers = []
            for layer in pool.map(self._layer, range(self._config.num_layers)):
                layers.append(layer)
                progress(len(layers) / num_parts)
            embedding, rotary, final_norm, output = ends.result()
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(num_threads)
        progress(1.0)
        return Decoder(embedding, rotary, layers, final_norm, output)

    @torch.inference_mode()
    def _ends(self, num_positions: int) -> tuple[Embedding, RotaryTable, RmsNorm, Linear]:
        """Load the tensors before and after the layers: embedding, rotary table, final norm, output."""
        config, checkpoint, scheme = self._config, self._checkpoint, self._scheme
        shape = (config.vocab_size, config.hidden_size)
        stored_table = checkpoint.matrix("embedding", shape)
        factors = (
            checkpoint.vector("frequency_factors", config.head_size // 2)
            if checkpoint.has("frequency_factors")
            else None
        )
        rotary = RotaryTable.build(
            num_positions, config.head_size, config.rope_theta, config.rope_scaling, self._device, factors
        )
        embedding = self._embedding(stored_table)
        if config.tied_output and isinstance(embedding, OpenEmbedding) and scheme.is_fixed:
            output = scheme.share(embedding.table)
        else:
            output = scheme.build(stored_table if config.tied_output else checkpoint.matrix("output", shape))
        return embedding, rotary, self._norm("final_norm"), Linear(output)

    def _embedding(self, table: StoredMatrix) -> Embedding:
        if self._scheme.keeps_stored(table):
            return StoredEmbedding(table.parts[0], self._scheme.activation_dtype)
        return OpenEmbedding(table.to_dtype(self._scheme.table_dtype).to(self._device), self._scheme.activation_dtype)

    @torch.inference_mode()
    def _layer(self, layer: int) -> DecoderLayer:
        config, prefix = self._config, f"layers.{layer}."
        query_size, kv_size = config.num_heads * config.head_size, config.num_kv_heads * config.head_size
        qkv = self._linear(prefix, {"q": query_size, "k": kv_size, "v": kv_size}, config.hidden_size, config.qkv_bias)
        output = self._linear(prefix, {"o": config.hidden_size}, query_size, config.output_bias)
        gate_up = self._linear(
            prefix, {"gate": config.intermediate_size, "up": config.intermediate_size}, config.hidden_size
        )
        down = self._linear(prefix, {"down": config.hidden_size}, config.intermediate_size)
        attention = Attention(layer, config.attention_shape, qkv, output)
        return DecoderLayer(
            self._norm(prefix + "attention_norm"), attention, self._norm(prefix + "mlp_norm"), gate_up, down
        )

    def _linear(self, prefix: str, outputs: dict[str, int], num_inputs: int, has_bias: bool = False) -> Linear:
        """Stack tensors with the same inputs into one linear layer. outputs: name -> rows."""
        stacked = StoredMatrix.stack(
            [self._checkpoint.matrix(prefix + name, (rows, num_inputs)) for name, rows in outputs.items()]
        )
        if not has_bias:
            return Linear(self._scheme.build(stacked))
        bias = torch.cat([self._checkpoint.vector(f"{prefix}{name}_bias", rows) for name, rows in outputs.items()])
        return Linear(self._scheme.build(stacked), bias.to(self._device, self._scheme.activation_dtype))

    def _norm(self, name: str) -> RmsNorm:
        weight = self._checkpoint.vector(name, self._config.hidden_size)
        return RmsNorm(weight.to(self._device, self._scheme.activation_dtype), self._config.norm_eps)
