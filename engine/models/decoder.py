"""The decoder that all families share: embedding, layers, final norm, vocabulary projection.

Built from a checkpoint and a weight scheme; called by the runner with the tokens of one step, of any sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import torch

from engine.attention.backend import StepAttention
from engine.layers.adapters import StepAdapters
from engine.layers.attention import Attention
from engine.layers.embedding import Embedding, InputRows, OpenEmbedding, StoredEmbedding
from engine.layers.feed_forward import FeedForward
from engine.layers.linear import Linear
from engine.layers.norm import HeadsNorm, Norm
from engine.layers.own_input import OwnInput, OwnInputs
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
    if config.input_size:
        yield "input_embedding", (config.input_vocab_size, config.input_size)
        yield "input_projection", (config.input_size, hidden)
        yield "input_projection_norm", (config.layers[0].input_size,)
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
    stacked = stacked_names(layer)
    tensors |= {"q": (query, hidden)} | {name: (kv, hidden) for name in ("k", "v") if name in stacked}
    tensors |= {"o": (hidden, query)}
    tensors |= {"sinks": (heads.num_heads,)} if heads.has_sinks else {}
    if layer.qk_norm is not QkNorm.NONE:
        is_whole = layer.qk_norm is QkNorm.WIDTH
        tensors |= {"q_norm": (query if is_whole else heads.head_size,)}
        tensors |= {"k_norm": (kv if is_whole else heads.head_size,)} if heads.has_keys else {}
    tensors |= {f"{name}_bias": tensors[name][:1] for name in stacked if layer.qkv_bias}
    tensors |= {"o_bias": (hidden,)} if layer.output_bias else {}
    mlp = {"gate": (inner, hidden)} if layer.is_gated else {}
    mlp |= {"up": (inner, hidden), "down": (hidden, inner)}
    mlp |= {f"{name}_bias": shape[:1] for name, shape in mlp.items() if layer.mlp_bias}
    size = layer.input_size
    own = {"input_gate": (size, hidden), "input_up": (hidden, size), "input_norm": (hidden,)} if size else {}
    scale = {"scale": (1,)} if layer.has_scale else {}
    return tensors | mlp | own | scale


def stacked_names(layer: LayerConfig) -> tuple[str, ...]:
    """Return the tensors whose rows make the first projection of a layer's attention: queries, keys, values."""
    return ("q", "k", "v") if layer.attention.has_keys else ("q",)


class Projection(NamedTuple):
    """A linear layer that adapters may change: our names of the tensors that are stacked in it, and its inputs."""

    names: tuple[str, ...]
    num_inputs: int


def projections(config: ModelConfig) -> list[Projection]:
    """Return the projections by their places: of each layer queries, keys and values, output, gate and up, down."""
    found = []
    for number, layer in enumerate(config.layers):
        heads, hidden = layer.attention, config.hidden_size
        up = ("gate", "up") if layer.is_gated else ("up",)
        inputs = (hidden, heads.num_heads * heads.head_size, hidden, layer.intermediate_size)
        for names, num_inputs in zip((stacked_names(layer), ("o",), up, ("down",)), inputs, strict=True):
            found.append(Projection(tuple(f"layers.{number}.{name}" for name in names), num_inputs))
    return found


QKV, OUTPUT, UP, DOWN = range(4)
"""The places of a layer's projections, behind those of the layers before."""


class DecoderLayer:
    """Attention, then feed-forward, each with norms before or after it, and added to the residual stream.

    A norm after them is None where the layer has none, as is `own_input`.
    """

    def __init__(
        self,
        attention_norm: Norm,
        attention: Attention,
        attention_output_norm: Norm | None,
        mlp_norm: Norm,
        mlp: FeedForward,
        mlp_output_norm: Norm | None,
        own_input: OwnInput | None = None,
    ) -> None:
        self._attention_norm = attention_norm
        self._attention = attention
        self._attention_output_norm = attention_output_norm
        self._mlp_norm = mlp_norm
        self._mlp = mlp
        self._mlp_output_norm = mlp_output_norm
        self._own_input = own_input

    def __call__(
        self,
        hidden: torch.Tensor,
        delta: torch.Tensor | None,
        rotations: torch.Tensor,
        attention: StepAttention,
        own_inputs: torch.Tensor | None = None,
        adapters: StepAdapters | None = None,
    ) -> torch.Tensor:
        """Add `delta`, the output of the layer before, to the residual stream in place; return this layer's output.

        All are (T, E), but for own_inputs, (T, P of all layers).
        """
        num_rows = hidden.shape[0]
        normed = self._attention_norm(hidden, delta, self._attention.input_dtype(num_rows))
        delta = self._attention(normed, rotations, attention, adapters)
        if self._attention_output_norm is not None:
            delta = self._attention_output_norm(delta.to(hidden.dtype), None, hidden.dtype)
        delta = self._mlp(self._mlp_norm(hidden, delta, self._mlp.input_dtype(num_rows)), adapters)
        if self._mlp_output_norm is not None:
            delta = self._mlp_output_norm(delta.to(hidden.dtype), None, hidden.dtype)
        if self._own_input is not None and own_inputs is not None:
            delta = self._own_input(hidden, delta, own_inputs)
        return delta


def num_deep(vectors: tuple[InputRows, ...]) -> int:
    """Return behind how many layers something is added to rows of media."""
    return max((0 if rows.deep is None else len(rows.deep) for rows in vectors), default=0)


def add_deep(delta: torch.Tensor, vectors: tuple[InputRows, ...], layer: int) -> None:
    """Add to the output of a layer (T, E) what rows of media get behind it."""
    for rows in vectors:
        if rows.deep is not None and layer < len(rows.deep):
            delta[rows.first : rows.first + len(rows.vectors)] += rows.deep[layer].to(delta.dtype)


class LayerInputs(NamedTuple):
    """What the layers read of a step: the residual stream (T, E), which they change, the rotations (N, T, 1, D/2), and
    their own inputs (T, P of all layers) where they have some.
    """

    hidden: torch.Tensor
    rotations: torch.Tensor
    own: torch.Tensor | None


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
        own_inputs: OwnInputs | None = None,
        last_scale: float = 1.0,
    ) -> None:
        """`last_scale`: of the residual stream at the end of the last layer."""
        self._own_inputs = own_inputs
        self._last_scale = last_scale
        self._embedding = embedding
        self._rotary = rotary
        self._layers = layers
        self._final_norm = final_norm
        self._output = output
        self._config = config

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: StepAttention,
        adapters: StepAdapters | None = None,
        vectors: tuple[InputRows, ...] = (),
    ) -> torch.Tensor:
        """Run the layers. token_ids, positions: (T,) int64  ->  hidden (T, E), before the final norm.

        `adapters`: of the rows, if any has one. `vectors`: as of `begin`.
        """
        inputs = self.begin(token_ids, positions, vectors)
        return self.end(inputs.hidden, self.run_layers(inputs, attention, adapters, vectors=vectors))

    def begin(
        self, token_ids: torch.Tensor, positions: torch.Tensor, vectors: tuple[InputRows, ...] = ()
    ) -> LayerInputs:
        """Compute the inputs of the layers. `vectors`: of rows that have others than those of their tokens."""
        hidden = self._embedding(token_ids)
        if self._config.embedding_scale != 1.0:
            hidden *= self._config.embedding_scale
        for rows in vectors:
            own = rows.vectors.to(hidden.dtype)
            scale = self._config.embedding_scale if self._config.scales_vectors else 1.0
            hidden[rows.first : rows.first + len(own)] = own if scale == 1.0 else own * scale
        own = None if self._own_inputs is None else self._own_inputs(token_ids, hidden)
        return LayerInputs(hidden, self._rotary.at(positions, vectors), own)

    def run_layers(
        self,
        inputs: LayerInputs,
        attention: StepAttention,
        adapters: StepAdapters | None = None,
        after_layer: Callable[[torch.Tensor], None] = lambda delta: None,
        vectors: tuple[InputRows, ...] = (),
    ) -> torch.Tensor:
        """Run the layers over `begin`'s rows; return the last layer's output (T, E), not yet added to the stream.

        `after_layer`: called with the output of each. `vectors`: as of `begin`.
        """
        hidden, rotations, own = inputs
        delta = None
        for number, layer in enumerate(self._layers):
            delta = layer(hidden, delta, rotations, attention, own, adapters)
            add_deep(delta, vectors, number)
            after_layer(delta)
        return torch.zeros_like(hidden) if delta is None else delta

    def end(self, hidden: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
        """Add the last layer's output to the residual stream. hidden, delta: (T, E)  ->  (T, E)."""
        ended = torch.add(hidden, delta, alpha=self._config.residual_scale)
        return ended if self._last_scale == 1.0 else ended.mul_(self._last_scale)

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
            embedding, rotary, final_norm, output, own_inputs = ends.result()
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(num_threads)
        progress(1.0)
        last_scale = self._stream_scale(self._config.num_layers)
        return Decoder(embedding, rotary, layers, final_norm, output, self._config, own_inputs, last_scale)

    @torch.inference_mode()
    def _ends(self) -> tuple[Embedding, RotaryEmbedding, Norm, Linear, OwnInputs | None]:
        """Load what is before and after the layers: embedding, rotations, final norm, output, layers' own inputs."""
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
        return embedding, rotary, self._norm("final_norm"), Linear(output), self._own_inputs()

    def _own_inputs(self) -> OwnInputs | None:
        config, checkpoint = self._config, self._checkpoint
        if not config.input_size:
            return None
        table = checkpoint.matrix("input_embedding", (config.input_vocab_size, config.input_size))
        projection = checkpoint.matrix("input_projection", (config.input_size, config.hidden_size))
        return OwnInputs(
            StoredEmbedding(table.parts[0], self._scheme.activation_dtype),
            Linear(self._scheme.build(projection)),
            self._vector("input_projection_norm", config.layers[0].input_size),
            config.norm_eps,
        )

    def _embedding(self, table: StoredMatrix) -> Embedding:
        if self._scheme.keeps_stored(table):
            return StoredEmbedding(table.parts[0], self._scheme.activation_dtype)
        return OpenEmbedding(table.to_dtype(self._scheme.table_dtype).to(self._device), self._scheme.activation_dtype)

    @torch.inference_mode()
    def _layer(self, number: int) -> DecoderLayer:
        layer, hidden, prefix = self._config.layers[number], self._config.hidden_size, f"layers.{number}."
        heads, inner = layer.attention, layer.intermediate_size
        query, kv = heads.num_heads * heads.head_size, heads.num_kv_heads * heads.head_size
        stacked = [(name, query if name == "q" else kv) for name in stacked_names(layer)]
        places = range(4 * number, 4 * number + 4)
        qkv = self._linear(prefix, stacked, hidden, layer.qkv_bias, places[QKV])
        output = self._linear(prefix, [("o", hidden)], query, layer.output_bias, places[OUTPUT])
        gate = [("gate", inner)] * layer.is_gated
        up = self._linear(prefix, [*gate, ("up", inner)], hidden, layer.mlp_bias, places[UP])
        down = self._linear(prefix, [("down", hidden)], inner, layer.mlp_bias, places[DOWN])
        mlp = FeedForward(up, down, is_gelu=layer.activation is Activation.GELU_TANH, is_gated=layer.is_gated)
        heads_norm = self._heads_norm(prefix, layer)
        sinks = self._checkpoint.vector(f"{prefix}sinks", heads.num_heads) if heads.has_sinks else None
        sinks = None if sinks is None else sinks.to(self._device)
        attention = Attention(number, heads, qkv, output, layer.rotation, heads_norm, layer.query_rotation, sinks)
        norms = [
            (
                self._norm(f"{prefix}{block}_norm", scale) if layer.has_input_norms else self._sum(scale),
                self._norm(f"{prefix}{block}_output_norm") if layer.has_output_norms else None,
            )
            for block, scale in (("attention", self._stream_scale(number)), ("mlp", 1.0))
        ]
        (attention_norm, attention_output_norm), (mlp_norm, mlp_output_norm) = norms
        own = self._own_input(number) if layer.input_size else None
        return DecoderLayer(attention_norm, attention, attention_output_norm, mlp_norm, mlp, mlp_output_norm, own)

    def _own_input(self, number: int) -> OwnInput:
        layers, hidden, prefix = self._config.layers, self._config.hidden_size, f"layers.{number}."
        size = layers[number].input_size
        first = sum(layer.input_size for layer in layers[:number])
        return OwnInput(
            self._sum(),
            self._linear(prefix, [("input_gate", size)], hidden),
            self._linear(prefix, [("input_up", hidden)], size),
            self._norm(f"{prefix}input_norm"),
            slice(first, first + size),
            is_gelu=layers[number].activation is Activation.GELU_TANH,
        )

    def _stream_scale(self, number: int) -> float:
        """Return the number by which the layer before the one of this number multiplies the residual stream."""
        if not number or not self._config.layers[number - 1].has_scale:
            return 1.0
        return self._checkpoint.vector(f"layers.{number - 1}.scale", 1).item()

    def _linear(
        self,
        prefix: str,
        outputs: list[tuple[str, int]],
        num_inputs: int,
        has_bias: bool = False,
        place: int | None = None,
    ) -> Linear:
        """Stack tensors with the same inputs into one linear layer. outputs: names and rows   place: as in `Linear`"""
        stacked = StoredMatrix.stack(
            [self._checkpoint.matrix(prefix + name, (rows, num_inputs)) for name, rows in outputs]
        )
        if not has_bias:
            return Linear(self._scheme.build(stacked), place=place)
        bias = torch.cat([self._checkpoint.vector(f"{prefix}{name}_bias", rows) for name, rows in outputs])
        return Linear(self._scheme.build(stacked), bias.to(self._device, self._scheme.activation_dtype), place)

    def _norm(self, name: str, stream_scale: float = 1.0) -> Norm:
        config = self._config
        bias = self._vector(f"{name}_bias", config.hidden_size) if config.has_norm_bias else None
        weight = self._vector(name, config.hidden_size)
        return Norm(weight, bias, config.norm_eps, config.residual_scale, stream_scale)

    def _sum(self, stream_scale: float = 1.0) -> Norm:
        """Make the norm of a layer that reads the residual stream as it is."""
        return Norm(None, None, self._config.norm_eps, self._config.residual_scale, stream_scale)

    def _heads_norm(self, prefix: str, layer: LayerConfig) -> HeadsNorm | None:
        heads = layer.attention
        assert layer.qk_norm is QkNorm.HEAD or not layer.has_value_norm
        if layer.qk_norm is QkNorm.NONE:
            return None
        num_queries, num_keys = (1, 1) if layer.qk_norm is QkNorm.WIDTH else (heads.num_heads, heads.num_kv_heads)
        query_weight = self._vector(prefix + "q_norm", heads.num_heads * heads.head_size // num_queries)
        if not heads.has_keys:
            return HeadsNorm(query_weight, num_queries, query_weight, 0, self._config.norm_eps)
        key_weight = self._vector(prefix + "k_norm", heads.num_kv_heads * heads.head_size // num_keys)
        num_values = num_keys if layer.has_value_norm else 0
        return HeadsNorm(query_weight, num_queries, key_weight, num_keys, self._config.norm_eps, num_values)

    def _vector(self, name: str, size: int) -> torch.Tensor:
        return self._checkpoint.vector(name, size).to(self._device, self._scheme.activation_dtype)
