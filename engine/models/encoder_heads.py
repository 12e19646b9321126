"""What follows an encoder: states of each text become a vector, or those of a pair of texts a score.

Sums are those of sentence-transformers' modules (Pooling, Dense, Normalize) and of transformers' classifiers with one
label, for which sentence-transformers' CrossEncoder takes a sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from engine.api.request import EmbedOptions
from engine.models.encoder import ACTIVATE, Affine
from engine.models.encoder_config import EncoderActivation


def pooled(states: torch.Tensor, pooling: str) -> torch.Tensor:
    """Pool the states (L, E) of a text: their "mean", the first ("cls") or the "last" one. Return (E,)."""
    if pooling == "mean":
        return states.mean(0, dtype=torch.float32).to(states.dtype)
    return states[0 if pooling == "cls" else -1]


def finished_vector(vector: torch.Tensor, options: EmbedOptions) -> torch.Tensor:
    """Cut a vector to the dimensions that are asked for, and make its length 1 unless the model leaves it."""
    vector = vector[: options.dimensions].double()
    if options.normalizes is False:
        return vector
    return vector / vector.norm().clamp(min=torch.finfo(torch.float32).tiny)


@dataclass(frozen=True, slots=True)
class VectorHead:
    """The chain behind an encoder that makes vectors of `size` numbers."""

    size: int
    dense: tuple[tuple[Affine, Callable[[torch.Tensor], torch.Tensor]], ...] = ()

    def __call__(self, texts: Sequence[torch.Tensor], options: Sequence[EmbedOptions]) -> list[list[float]]:
        """Return the vector of each text. texts: (L, E) each"""
        rows = [pooled(states, own.pooling or "mean") for states, own in zip(texts, options, strict=True)]
        vectors = torch.stack(rows)
        for layer, activate in self.dense:
            vectors = activate(layer(vectors))
        return [finished_vector(one, own).float().tolist() for one, own in zip(vectors, options, strict=True)]


@dataclass(frozen=True, slots=True)
class ScoringHead:
    """A classifier with one label behind an encoder."""

    dense: Affine
    activation: EncoderActivation
    output: Affine
    norm: Affine | None
    norm_eps: float
    pools_mean: bool
    is_raw: bool
    """Scores are the classifier's own numbers, not their sigmoid."""
    size: int = 1

    def __call__(self, texts: Sequence[torch.Tensor], options: Sequence[EmbedOptions]) -> list[list[float]]:
        """Return the score of each pair, as a vector of one number. texts: (L, E) each"""
        states = torch.stack([pooled(one, "mean" if self.pools_mean else "cls") for one in texts])
        inner = ACTIVATE[self.activation](self.dense(states))
        if self.norm is not None:
            inner = self.norm.normalize(inner, self.norm_eps)
        scores = self.output(inner).float()
        return (scores if self.is_raw else functional.sigmoid(scores)).tolist()


Head = VectorHead | ScoringHead
