"""The decoder that all families share: embedding, layers, final norm, vocabulary projection.

Built from a checkpoint and a weight scheme; called by the runner with the tokens of one step, of any sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import torch

from engine.attention.backend import StepAttention
from engine.layers.attention import Attention
from engine.layers.embedding import Embedding, OpenEmbedding, StoredEmbedding
from engine.layers.feed_forward import FeedForward
from engine.layers.linear import Linear
from engine.layers.norm import HeadsNorm, Norm
from engine.layers.rotary import RotaryEmbedding
from engine.models.config import Activation, LayerConfig, ModelConfig, QkNorm
from engine.quantization.scheme import WeightScheme
from engine.quantization.stored import StoredMatrix

OPTIONAL = ("frequency_factors", "short_factors", "long_factors")
"""The tensors that a checkpoint may lack: divisors of the rotations' frequencies, of longrope for two contexts."""
MAX_BUILDERS = 4
"""Layers that are loaded at once: each takes a few times its size in float32."""


class Checkpoint(Protocol):
    """A source of a model's tensors under our names; q and k rows have rotated pairs adjacent.

    `decoder_tensors` lists the names. Several threads read at once. A missing tensor or another shape raises
    ModelLoadError with the file's and the tensor's name.
    """

    def has(self, name: str) -> bool: ...

    def matrix(self, name: str, shape: tuple[int, int]) -> StoredMatrix: ...

    def vector(self, name: str, size: int) -> torch.Tensor:
        """float32 (size,)."""
        ...


def decoder_tensors(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of every tensor that a checkpoint must have, but for those that are OPTIONAL."""
    hidden = config.hidden_size
    norm_parts = ("", "_bias") if config.has_norm_bias else ("",)
    yield "embedding", (config.vocab_size, hidden)
    for name in OPTIONAL:
        yield name, (config.rotations[0].size // 2,)
    if not config.tied_output:
        yield "output", (config.vocab_size, hidden)
    for part in norm_parts:
        yield f"final_norm{part}", (hidden,)
    for number, layer in enumerate(config.layers):
        for name, shape in layer_tensors(layer, hidden, norm_parts).items():
            yield f"layers.{number}.{name}", shape


def layer_tensors(layer: LayerConfig, hidden: int, norm_parts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a layer's tensors."""
    heads, inner = layer.attention, layer.intermediate_size
    query, kv = heads.num_heads * heads.head_size, heads.num_kv_heads * heads.head_size
    tensors: dict[str, tuple[int, ...]] = {}
    for block in ("attention", "mlp"):
        kinds = [f"{block}_norm"] * layer.has_input_norms + [f"{block}_output_norm"] * layer.has_output_norms
        tensors |= {f"{kind}{part}": (hidden,) for kind in kinds for part in norm_parts}
    tensors |= {"q": (query, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, query)}
    if layer.qk_norm is not QkNorm.NONE:
        is_whole = layer.qk_norm is QkNorm.WIDTH
        tensors |= {
            "q_norm": (query if is_whole else heads.head_size,),
            "k_norm": (kv if is_whole else heads.head_size,),
        }
    tensors |= {f"{name}_bias": tensors[name][:1] for name in ("q", "k", "v") if layer.qkv_bias}
    tensors |= {"o_bias": (hidden,)} if layer.output_bias else {}
    mlp = {"gate": (inner, hidden)} if layer.is_gated else {}
    mlp |= {"up": (inner, hidden), "down": (hidden, inner)}
    biases = {f"{name}_bias": shape[:1] for name, shape in mlp.items() if layer.mlp_bias}
    return tensors | mlp | biases


class DecoderLayer:
    """Attention, then feed-forward, each with norms before or after it, and added to the residual stream.

    A norm after them is None where the layer has none.
    """

    def __init__(
        self,
        attention_norm: Norm,
        attention: Attention,
        attention_output_norm: Norm | None,
        mlp_norm: Norm,
        mlp: FeedForward,
        mlp_output_norm: Norm | None,
    ) -> None:
        self._attention_norm = attention_norm
        self._attention = attention
        self._attention_output_norm = attention_output_norm
        self._mlp_norm = mlp_norm
        self._mlp = mlp
        self._mlp_output_norm = mlp_output_norm

    def __call__(
        self, hidden: torch.Tensor, delta: torch.Tensor | None, rotations: torch.Tensor, attention: StepAttention
    ) -> torch.Tensor:
        """Add `delta`, the output of the layer before, to the residual stream in place; return this layer's output.

        All are (T, E).
        """
        num_rows = hidden.shape[0]
        normed = self._attention_norm(hidden, delta, self._attention.input_dtype(num_rows))
        delta = self._attention(normed, rotations, attention)
        if self._attention_output_norm is not None:
            delta = self._attention_output_norm(delta.to(hidden.dtype), None, hidden.dtype)
        delta = self._mlp(self._mlp_norm(hidden, delta, self._mlp.input_dtype(num_rows)))
        if self._mlp_output_norm is not None:
            delta = self._mlp_output_norm(delta.to(hidden.dtype), None, hidden.dtype)
        return delta


class Decoder:
    """A model that is ready to run."""

    backend = "native"
    is_recordable = True
    """Steps may run as recorded programs and as captured graphs."""

    def __init__(
        self,
        embedding: Embedding,
        rotary: RotaryEmbedding,
        layers: list[DecoderLayer],
        final_norm: Norm,
        output: Linear,
        config: ModelConfig,
    ) -> None:
        self._embedding = embedding
        self._rotary = rotary
        self._layers = layers
        self._final_norm = final_norm
        self._output = output
        self._config = config

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor, attention: StepAttention) -> torch.Tensor:
        """Run the layers. token_ids, positions: (T,) int64  ->  hidden (T, E), before the final norm."""
        hidden, rotations = self.begin(token_ids, positions)
        return self.end(hidden, self.run_layers(hidden, rotations, attention))

    def begin(self, token_ids: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the inputs of the layers: the residual stream (T, E), which they change, and the rotations
        (N, T, 1, D/2).
        """
        hidden = self._embedding(token_ids)
        if self._config.embedding_scale != 1.0:
            hidden *= self._config.embedding_scale
        return hidden, self._rotary.at(positions)

    def run_layers(self, hidden: torch.Tensor, rotations: torch.Tensor, attention: StepAttention) -> torch.Tensor:
        """Run the layers over `begin`'s rows; return the last layer's output (T, E), not yet added to `hidden`."""
        delta = None
        for layer in self._layers:
            delta = layer(hidden, delta, rotations, attention)
        return torch.zeros_like(hidden) if delta is None else delta

    def end(self, hidden: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
        """Add the last layer's output to the residual stream. hidden, delta: (T, E)  ->  (T, E)."""
        return torch.add(hidden, delta, alpha=self._config.residual_scale)

    @torch.inference_mode()
    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalise rows whose hidden states are requested. hidden: (R, E)  ->  (R, E) float32."""
        return self._final_norm(hidden, None, torch.float32)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalise and project the rows that sample. hidden: (R, E)  ->  (R, V) float32."""
        logits = self._output(self._final_norm(hidden, None, self._output.input_dtype(hidden.shape[0]))).float()
        if self._config.logits_scale != 1.0:
            logits *= self._config.logits_scale
        if cap := self._config.logits_softcap:
            logits = logits.div_(cap).tanh_().mul_(cap)
        return logits


class DecoderBuilder:
    """A builder that converts the tensors of a checkpoint to weight forms and assembles the decoder."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, scheme: WeightScheme, device: torch.device) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._scheme = scheme
        self._device = device

    def build(self, progress: Callable[[float], None]) -> Decoder:
        """Load layers in parallel, each on one thread: faster than many threads on one small tensor, above all on a
        busy machine.

        Calls `progress` with the fraction done.
        """
        num_threads = torch.get_num_threads()
        num_parts = self._config.num_layers + 1
        pool = ThreadPoolExecutor(min(num_threads, MAX_BUILDERS), initializer=torch.set_num_threads, initargs=(1,))
        try:
            ends = pool.submit(self._ends)
            layers = []
            for layer in pool.map(self._layer, range(self._config.num_layers)):
                layers.append(layer)
                progress(len(layers) / num_parts)
            embedding, rotary, final_norm, output = ends.result()
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(num_threads)
        progress(1.0)
        return Decoder(embedding, rotary, layers, final_norm, output, self._config)

    @torch.inference_mode()
    def _ends(self) -> tuple[Embedding, RotaryEmbedding, Norm, Linear]:
        """Load what is before and after the layers: embedding, rotations, final norm, output."""
        config, checkpoint, scheme = self._config, self._checkpoint, self._scheme
        shape = (config.vocab_size, config.hidden_size)
        stored_table = checkpoint.matrix("embedding", shape)
        rotation = config.rotations[0]
        held = {name: checkpoint.vector(name, rotation.size // 2) for name in OPTIONAL if checkpoint.has(name)}
        scaled = held.get("long_factors" if rotation.scaling.is_long else "short_factors")
        rotary = RotaryEmbedding.build(config.rotations, self._device, held.get("frequency_factors", scaled))
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
    def _layer(self, number: int) -> DecoderLayer:
        layer, hidden, prefix = self._config.layers[number], self._config.hidden_size, f"layers.{number}."
        heads, inner = layer.attention, layer.intermediate_size
        query, kv = heads.num_heads * heads.head_size, heads.num_kv_heads * heads.head_size
        qkv = self._linear(prefix, {"q": query, "k": kv, "v": kv}, hidden, layer.qkv_bias)
        output = self._linear(prefix, {"o": hidden}, query, layer.output_bias)
        up = self._linear(
            prefix, {"gate": inner, "up": inner} if layer.is_gated else {"up": inner}, hidden, layer.mlp_bias
        )
        down = self._linear(prefix, {"down": hidden}, inner, layer.mlp_bias)
        mlp = FeedForward(up, down, is_gelu=layer.activation is Activation.GELU_TANH, is_gated=layer.is_gated)
        attention = Attention(number, heads, qkv, output, layer.rotation, self._heads_norm(prefix, layer))
        norms = [
            (
                self._norm(f"{prefix}{block}_norm") if layer.has_input_norms else self._sum(),
                self._norm(f"{prefix}{block}_output_norm") if layer.has_output_norms else None,
            )
            for block in ("attention", "mlp")
        ]
        (attention_norm, attention_output_norm), (mlp_norm, mlp_output_norm) = norms
        return DecoderLayer(attention_norm, attention, attention_output_norm, mlp_norm, mlp, mlp_output_norm)

    def _linear(self, prefix: str, outputs: dict[str, int], num_inputs: int, has_bias: bool = False) -> Linear:
        """Stack tensors with the same inputs into one linear layer. outputs: name -> rows."""
        stacked = StoredMatrix.stack(
            [self._checkpoint.matrix(prefix + name, (rows, num_inputs)) for name, rows in outputs.items()]
        )
        if not has_bias:
            return Linear(self._scheme.build(stacked))
        bias = torch.cat([self._checkpoint.vector(f"{prefix}{name}_bias", rows) for name, rows in outputs.items()])
        return Linear(self._scheme.build(stacked), bias.to(self._device, self._scheme.activation_dtype))

    def _norm(self, name: str) -> Norm:
        config = self._config
        bias = self._vector(f"{name}_bias", config.hidden_size) if config.has_norm_bias else None
        return Norm(self._vector(name, config.hidden_size), bias, config.norm_eps, config.residual_scale)

    def _sum(self) -> Norm:
        """Make the norm of a layer that reads the residual stream as it is."""
        return Norm(None, None, self._config.norm_eps, self._config.residual_scale)

    def _heads_norm(self, prefix: str, layer: LayerConfig) -> HeadsNorm | None:
        heads = layer.attention
        if layer.qk_norm is QkNorm.NONE:
            return None
        counts = (1, 1) if layer.qk_norm is QkNorm.WIDTH else (heads.num_heads, heads.num_kv_heads)
        size = heads.num_heads * heads.head_size, heads.num_kv_heads * heads.head_size
        query_weight, key_weight = (
            self._vector(prefix + name, total // count)
            for name, total, count in zip(("q_norm", "k_norm"), size, counts, strict=True)
        )
        return HeadsNorm(query_weight, counts[0], key_weight, counts[1], self._config.norm_eps)

    def _vector(self, name: str, size: int) -> torch.Tensor:
        return self._checkpoint.vector(name, size).to(self._device, self._scheme.activation_dtype)
