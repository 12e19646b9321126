"""A transformers model without its weights: built from a config.json, checked, and described for the runner.

The model's own code is the installed transformers; that of a model's folder is never run. Its large matrices are
replaced by our parts (parts.py) before any weight is read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, __version__
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.pytorch_utils import Conv1D

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape
from engine.models.config import LayerConfig, ModelConfig
from engine.models.fields import MAX_LAYERS, MAX_SIZE, ORIGINAL_LENGTH, blamed
from engine.models.registry import architecture_of
from engine.models.transformers_backend import attention
from engine.models.transformers_backend.decoder import TransformersDecoder
from engine.models.transformers_backend.parts import ExpertMatrices, Projection, Table, scale_of, stand_in

logger = logging.getLogger(__name__)

LAYER_KINDS = ("full_attention", "sliding_attention")
TOLERANCE = 1e-4
"""Of rows of a model without weights that are computed in another order, as a share of their spread. None has been seen
to differ; a hundredth of another row, added in one of 40 layers, makes ten times as much."""
PARTS, PARTS_A_TENSOR = 1000, 32
"""Parts and parameters of a model: so many, and so many for each tensor of its folder; others have 2 or 3."""
MAX_TABLE = 1 << 24
"""Numbers of a table that a model computes itself; a rotation of heads of 128 has 64, XGLM's positions 8 million."""
BASES = ("rope_theta", "rotary_emb_base")
"""Bases of rotations, which are no sizes: those of long contexts are 100 million and more."""
REASON_CHARS = 300


class Skeleton:
    """A model whose parts wait for their weights.

    `values`: of its config.json; `shapes`: of the tensors that it needs, by transformers' names; `tied`: names of
    tensors that are others, to the names of these; `is_text_part`: the folder holds a larger model.
    """

    def __init__(self, source: str, values: Mapping[str, object], num_tensors: int) -> None:
        """`values`: of a config.json that `check_architecture` takes; `num_tensors`: of the folder, which no number of
        layers exceeds.

        Raises ModelLoadError that names what cannot be served.
        """
        self.source = source
        self.values = values
        self._num_tensors = num_tensors
        self.architecture = str(architecture_of(values))[:80]
        text = text_part(self.architecture, values)
        self.is_text_part = text is not None
        self.model = self._build(values if text is None else text)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self.model.state_dict().items()}
        self.tied: dict[str, str] = dict(self.model.all_tied_weights_keys)
        self._router_sizes = router_sizes(values if text is None else text)
        self.decoder: TransformersDecoder

    def refused(self, problem: str) -> ModelLoadError:
        return refusal(self.source, self.architecture, problem)

    def _build(self, values: Mapping[str, object]) -> PreTrainedModel:
        """Build the model on no device, but for the tables that it computes itself."""
        config = self._read_config(values)
        try:
            with torch.device("meta"), self._bounded_parts():
                model = AutoModelForCausalLM.from_config(
                    config,
                    attn_implementation=attention.CHECKED,
                    experts_implementation="eager",
                    dtype=torch.float32,
                )
            self._refuse_large_tables(model)
            for name, buffer in model.named_non_persistent_buffers():
                place, _, leaf = name.rpartition(".")
                set_tensor(model.get_submodule(place), leaf, torch.empty_like(buffer, device="cpu"))
            model.initialize_weights()
        except ModelLoadError:
            raise
        except Exception as error:  # transformers checks little of a config.json
            if isinstance(error, KeyError) and attention.CHECKED in error.args:
                raise self.refused("its attention does not go through transformers' attention interface") from error
            raise self.refused(f"transformers cannot build it: {shown(error)}") from error
        return model.eval().requires_grad_(False)

    def _read_config(self, values: Mapping[str, object]) -> PreTrainedConfig:
        self._refuse_large(values)
        # What computes a model, some of which transformers would fetch, and in which dtype, is ours to say.
        ours = ("_implementation", "dtype")
        kept = {name: value for name, value in values.items() if not (name.startswith("_") or name.endswith(ours))}
        try:
            config = CONFIG_MAPPING[str(values["model_type"])].from_dict(kept)
        except Exception as error:  # each config class checks in its own way
            raise self.refused(f"transformers cannot read its config.json: {shown(error)}") from error
        if getattr(config, "kv_lora_rank", None):
            raise self.refused("it has latent attention (kv_lora_rank)")
        if others := {str(kind)[:40] for kind in getattr(config, "layer_types", None) or ()} - {*LAYER_KINDS}:
            raise self.refused(f"it has layers of the kind {', '.join(sorted(others))}, not {' or '.join(LAYER_KINDS)}")
        return config

    def _refuse_large(self, values: Mapping[str, object]) -> None:
        """Refuse sizes beyond those of any model, and more layers than the folder has tensors."""
        for name, value in values.items():
            if type(value) is not int or name in BASES:
                continue
            is_count = name.startswith(("num_", "n_layer")) or name.endswith("experts")
            limit = MAX_LAYERS if is_count else MAX_SIZE
            if abs(value) > limit:
                raise ModelLoadError(f"{self.source}: {name[:80]} must be at most {limit}, got {str(value)[:80]}")
            if "layers" in name and value > self._num_tensors:
                raise ModelLoadError(
                    f"{self.source}: {name[:80]} is {value}, but the folder has {self._num_tensors} tensors in all"
                )

    @contextmanager
    def _bounded_parts(self) -> Iterator[None]:
        """Raise ModelLoadError once a model has many more parts than its folder has tensors: it would take for ever."""
        most, count = PARTS + PARTS_A_TENSOR * self._num_tensors, 0

        def note(*registered: object) -> None:
            nonlocal count
            count += 1
            if count > most:
                raise self.refused(f"it has more than {most} parts, but its folder has {self._num_tensors} tensors")

        with register_module_module_registration_hook(note), register_module_parameter_registration_hook(note):
            yield

    def _refuse_large_tables(self, model: PreTrainedModel) -> None:
        """Refuse tables that the model computes itself, such as those of positions, if they would fill the memory."""
        for name, buffer in model.named_non_persistent_buffers():
            if buffer.numel() > MAX_TABLE:
                shape = tuple(buffer.shape)
                raise self.refused(f"its table {name} has the shape {shape}{blamed(self.values, shape, ())}")

    def _replace_parts(self, kept_sizes: set[int]) -> None:
        """Put our parts in the place of matrices, and numbers without memory in the place of other parameters.

        `kept_sizes`: matrices with so many outputs choose experts, and stay exact.
        """
        for name, module in list(self.model.named_modules()):
            part: nn.Module | None = None
            if type(module) is nn.Linear and module.out_features in kept_sizes:
                continue
            if type(module) in (nn.Linear, Conv1D):
                part = Projection(module)
            elif isinstance(module, nn.Embedding) and (scale := scale_of(module)) is not None:
                part = Table(module, scale)
            elif has_experts(module):
                for leaf, stack in list(module.named_parameters(recurse=False)):
                    if leaf.endswith("_proj"):
                        delattr(module, leaf)
                        setattr(module, leaf, ExpertMatrices(stack, is_transposed=module.is_transposed))
            if part is not None:
                place, _, leaf = name.rpartition(".")
                setattr(self.model.get_submodule(place), leaf, part)
        for name, tensor in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if tensor.is_meta:
                place, _, leaf = name.rpartition(".")
                set_tensor(self.model.get_submodule(place), leaf, stand_in(tensor.shape))

    def describe(self) -> ModelConfig:
        """Put our parts into the model, run the layers without weights, and return what they ask for.

        Called once, when the folder is known to have tensors of these shapes: others could take any time and memory.
        Raises ModelLoadError.
        """
        self._replace_parts(self._router_sizes)
        self.decoder = TransformersDecoder(self.model)
        shapes: dict[nn.Module, AttentionShape] = {}

        def note(module: nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *asked: Any) -> torch.Tensor:
            if module in shapes:
                raise attention.UnservedAttention("is computed more than once a step")
            shapes[module] = attention.asked_shape(module, q, k, v, *asked)
            return own_row(q, k, v)

        config = self.model.config
        hidden, logits = self._run([1, 2, 3], [0, 1, 2], note)
        num_layers = config.get_text_config().num_hidden_layers
        if len(shapes) != num_layers:
            raise self.refused(
                f"{len(shapes)} of its {num_layers} layers have an attention that transformers lets us compute"
            )
        self.model.set_attn_implementation(attention.PAGED)
        self._refuse_other_ways_between_tokens()
        self.decoder.bind(list(shapes), logits.shape[-1])
        length = self._max_position(config)
        products = [part for part in self.model.base_model.modules() if isinstance(part, Projection)]
        widest = max((part.out_features for part in products), default=1)
        logger.info(
            "%s: no native family here describes this %s; it is run by the layers of transformers %s with our "
            "attention and weights",
            self.source,
            self.architecture,
            __version__,
        )
        return ModelConfig(
            architecture=self.architecture,
            vocab_size=logits.shape[-1],
            hidden_size=hidden.shape[-1],
            layers=tuple(
                LayerConfig(replace(shape, window=shape.window if shape.window < length else 0), widest)
                for shape in shapes.values()
            ),
            rotations=(),
            norm_eps=0.0,
            max_position=length,
            tied_output=bool(self.tied),
        ).check(self.source)

    def _refuse_other_ways_between_tokens(self) -> None:
        """Refuse models that pass something from token to token otherwise than by attention, such as a convolution, a
        state or a count of positions: without attention, a token's result may depend on nothing but its own position.
        """

        def alone(module: nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *asked: Any) -> torch.Tensor:
            return own_row(q, k, v)

        _, together = self._run([1, 2, 3], [7, 3, 11], alone)
        _, apart = self._run([3, 1], [11, 7], alone)
        spread = float(together.std())
        if not isfinite(spread):
            raise self.refused("with the numbers of its config.json its layers compute none that are finite")
        if not torch.allclose(together[[2, 0]], apart, rtol=0, atol=TOLERANCE * spread):
            raise self.refused("its layers pass something from token to token beside attention, such as a state")

    def _run(
        self, token_ids: list[int], positions: list[int], call: attention.AttentionCall
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the hidden states and the logits of a few tokens."""
        try:
            with torch.inference_mode(), attention.attention_by(call):
                hidden = self.decoder.run(torch.tensor(token_ids), torch.tensor(positions))
                return hidden, self.decoder.logits(hidden)
        except attention.UnservedAttention as error:
            raise self.refused(f"its attention {error}") from error
        except Exception as error:  # its code may lack what ours expects, in as many ways as there are models
            raise self.refused(f"its layers do not run with an attention of ours: {shown(error)}") from error

    def _max_position(self, config: PreTrainedConfig) -> int:
        """Return the context: as trained, and no longer than where rotations depend on the longest of a step."""
        length = getattr(config, "max_position_embeddings", None)
        if type(length) is not int or not 1 <= length <= MAX_SIZE:
            raise ModelLoadError(f"{self.source}: max_position_embeddings must be from 1 to {MAX_SIZE}, got {length!r}")
        shortest = min(original_lengths(getattr(config, "rope_parameters", None) or {}), default=length)
        if shortest < 1:
            raise ModelLoadError(f"{self.source}: {ORIGINAL_LENGTH} must be at least 1, got {shortest}")
        if shortest >= length:
            return length
        logger.warning(
            "%s: the context is %d of %d tokens: beyond, longrope depends on the longest context of a step",
            self.source,
            shortest,
            length,
        )
        return int(shortest)


def original_lengths(rope: Mapping[str, Any]) -> list[float]:
    """Return the contexts before longrope stretched them; kinds of layers may each have a rule of rotation."""
    rules = [rope, *(rule for rule in rope.values() if isinstance(rule, Mapping))]
    return [rule[ORIGINAL_LENGTH] for rule in rules if rule.get("rope_type") == "longrope" and ORIGINAL_LENGTH in rule]


def check_architecture(source: str, values: Mapping[str, object]) -> None:
    """Raise ModelLoadError unless a config.json, or the text part in it, names a causal model of transformers."""
    architecture = str(architecture_of(values))[:80]
    text = text_part(architecture, values)
    values = values if text is None else text
    if values.get("is_encoder_decoder"):
        raise refusal(source, architecture, "it has an encoder; only decoders of text are served")
    if architecture_of(values) not in causal_models(values):
        problem = f"no family here and no causal model of transformers {__version__} has this name (docs/models.md)"
        raise refusal(source, architecture, problem)


def refusal(source: str, architecture: str, problem: str) -> ModelLoadError:
    return ModelLoadError(f"{source}: the architecture {architecture!r} cannot be served: {problem}")


def causal_models(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the causal models that transformers has for the `model_type` of a config.json."""
    names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(str(values.get("model_type")), ())
    return (names,) if isinstance(names, str) else tuple(names)


def text_part(architecture: str, values: Mapping[str, object]) -> dict[str, object] | None:
    """Return the config.json of the text model within a larger one of the same family, as Gemma3nForCausalLM is within
    Gemma3nForConditionalGeneration; None for others, which may use a text model in their own way.
    """
    text = values.get("text_config")
    for name in causal_models(text) if isinstance(text, dict) else ():
        if name != architecture and architecture.startswith(name.removesuffix("ForCausalLM")):
            is_tied = {key: values[key] for key in ("tie_word_embeddings",) if key in values}
            return {**text, **is_tied, "architectures": [name]}
    return None


def router_sizes(values: Mapping[str, object]) -> set[int]:
    """Return the numbers of outputs of what chooses or weighs experts; empty for a model without."""
    counts = {value for name, value in values.items() if name.endswith("experts") and type(value) is int and value}
    return counts | {1} if counts else set()


def has_experts(module: nn.Module) -> bool:
    """Return True for experts of which transformers' code multiplies by one matrix of a stack after another."""
    return all(hasattr(module, name) for name in ("is_concatenated", "is_transposed", "has_gate", "down_proj"))


def set_tensor(module: nn.Module, name: str, value: torch.Tensor) -> None:
    """Replace a parameter or a buffer of a module."""
    is_buffer = name in dict(module.named_buffers(recurse=False))
    setattr(module, name, value if is_buffer else nn.Parameter(value, requires_grad=False))


def own_row(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute something for each token by itself, in the place of attention. q: (T, H, D)  k, v: (T, K, D)"""
    return q * 0.1 + (k * 0.1 + v).repeat_interleave(q.shape[1] // v.shape[1], dim=1)


def shown(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:REASON_CHARS]
