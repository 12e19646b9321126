"""The decoder of a transformers model: its layers over the packed tokens of a step, its head over the rows that sample.

All tokens of a step are one batch of one row. Positions and our attention, which knows whose context is whose, are all
that the layers see of sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from engine.attention.backend import StepAttention
from engine.layers.adapters import StepAdapters
from engine.layers.embedding import InputRows
from engine.models.transformers_backend.attention import attention_by, refuse_unknown
from engine.models.transformers_backend.parts import Projection, changed_by


class LayersOutput:
    """What a head is given in the place of the layers' output: the last hidden states, and None for all else."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: int) -> torch.Tensor | None:
        return self.last_hidden_state if index == 0 else None

    def __getattr__(self, name: str) -> None:
        return None


def head_of(model: PreTrainedModel) -> nn.Module:
    """Return the model with layers that return the embeddings that they are given; it shares all other parts."""
    layers = copy(model.base_model)
    layers.forward = lambda *args, inputs_embeds, **others: LayersOutput(inputs_embeds)
    shared = {id(part): part for part in (*model.children(), *model.parameters(), *model.buffers())}
    return deepcopy(model, shared | {id(model.base_model): layers})


class TransformersDecoder:
    """A decoder as the runner calls it (`models.decoder.Decoder`)."""

    backend = "transformers"
    is_recordable = False
    """Steps are computed by torch, layer by layer: no programs and no graphs."""

    def __init__(self, model: PreTrainedModel) -> None:
        """`model`: a causal model."""
        self._layers = model.base_model
        self._head = head_of(model)
        self._places: dict[nn.Module, int] = {}
        self._vocab_size = 0
        self.projections: dict[str, Projection] = {}
        """The linear layers that adapters may change, by their names in the model and in the order of their places."""

    def bind(self, modules: Sequence[nn.Module], vocab_size: int) -> None:
        """Give the attention of each layer its place in the cache, and the head its width."""
        self._vocab_size = vocab_size
        self._places = {module: place for place, module in enumerate(modules)}
        prefix, parts = self._head.base_model_prefix, self._layers.named_modules()
        self.projections = {f"{prefix}.{name}": part for name, part in parts if isinstance(part, Projection)}
        for place, part in enumerate(self.projections.values()):
            part.place = place

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: StepAttention,
        adapters: StepAdapters | None = None,
        vectors: tuple[InputRows, ...] = (),
    ) -> torch.Tensor:
        """Run the layers. token_ids, positions: (T,) int64  ->  hidden (T, E), after the final norm.

        `adapters`: of the rows, if any has one. `vectors`: of rows that have other inputs than those of their tokens.
        """

        def attend(
            module: nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: None, others: dict[str, Any]
        ) -> torch.Tensor:
            refuse_unknown(others)  # a layer may give them in long contexts only
            sinks = others.get("s_aux")
            return attention.attend(self._places[module], q, k, v, None if sinks is None else sinks.float())

        with attention_by(attend), changed_by(adapters):
            return self.run(token_ids, positions, vectors)

    def run(
        self, token_ids: torch.Tensor, positions: torch.Tensor, vectors: tuple[InputRows, ...] = ()
    ) -> torch.Tensor:
        """Run the layers with the attention of this context. token_ids, positions: (T,) int64  ->  (T, E)"""
        inputs: dict[str, torch.Tensor] = {"input_ids": token_ids[None]}
        if vectors:
            hidden = self._layers.get_input_embeddings()(token_ids)
            for first, rows in vectors:
                hidden[first : first + len(rows)] = rows.to(hidden.dtype)
            inputs = {"inputs_embeds": hidden[None]}
        output = self._layers(**inputs, position_ids=positions[None], use_cache=False)
        return output.last_hidden_state[0]

    @torch.inference_mode()
    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return rows whose hidden states are requested. hidden: (R, E)  ->  (R, E) float32."""
        return hidden.float()

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Project the rows that sample. hidden: (R, E)  ->  (R, V) float32."""
        if not len(hidden):
            return hidden.new_zeros(0, self._vocab_size, dtype=torch.float32)
        return self._head(inputs_embeds=hidden[None], use_cache=False).logits[0].float()
