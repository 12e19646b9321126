"""A slow, plain sampler for one row in float64: the definition of each parameter."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from engine.api.request import LogprobOptions, SamplingParams, StopRules
from engine.messages import AddSequence, Thinking
from engine.sampling.draw import uniform
from engine.sequence import Sequence


def make_sequence(
    seq_id: int,
    sampling: SamplingParams,
    prompt_ids: list[int] | None = None,
    output_ids: list[int] | None = None,
    stop_ids: tuple[int, ...] = (),
    min_tokens: int = 0,
    logprobs: LogprobOptions | None = None,
    bad_words: list[list[int]] | None = None,
    thinking: Thinking | None = None,
    scores_processed: bool = False,
) -> Sequence:
    request = AddSequence(
        seq_id=seq_id,
        prompt_ids=prompt_ids or [1],
        output_ids=output_ids or [],
        sampling=sampling,
        stop=StopRules(min_tokens=min_tokens),
        logprobs=logprobs or LogprobOptions(),
        stop_ids=list(stop_ids),
        max_tokens=100,
        cache_root=b"",
        bad_word_ids=bad_words or [],
        thinking=thinking,
        scores_processed=scores_processed,
    )
    return Sequence(request)


def with_request(sequence: Sequence, **changes: Any) -> Sequence:
    """Return a copy of the sequence with some fields of its request changed."""
    return Sequence(dataclasses.replace(sequence.request, **changes))


def penalised(logits: list[float], sequence: Sequence) -> list[float]:
    """Apply masks, bias and penalties, steps 2 to 6 of the order; a grammar's mask is in the logits already."""
    sampling = sequence.sampling
    output_ids = sequence.output_ids
    forbidden = (
        set() if sampling.allowed_token_ids is None else set(range(len(logits))) - set(sampling.allowed_token_ids)
    )
    for word in sequence.request.bad_word_ids:
        if len(output_ids) >= len(word) - 1 and output_ids[len(output_ids) - len(word) + 1 :] == word[:-1]:
            forbidden.add(word[-1])
    if len(output_ids) < sequence.request.stop.min_tokens:
        forbidden |= sequence.stop_ids
    logits = [-math.inf if token_id in forbidden else logit for token_id, logit in enumerate(logits)]
    for token_id, bias in dict(sampling.logit_bias).items():
        logits[token_id] += bias
    for token_id in set(sequence.prompt_ids) | set(sequence.output_ids):
        factor = sampling.repetition_penalty
        logits[token_id] = logits[token_id] / factor if logits[token_id] > 0 else logits[token_id] * factor
    for token_id in set(sequence.output_ids):
        logits[token_id] -= sampling.frequency_penalty * sequence.output_ids.count(token_id) + sampling.presence_penalty
    return logits


def constrained(logits: list[float], sequence: Sequence) -> list[float]:
    """Apply steps 2 to 8, without logits processors."""
    logits = penalised(logits, sequence)
    forced = forced_id(sequence)
    return logits if forced is None else [0.0 if token_id == forced else -math.inf for token_id in range(len(logits))]


def forced_id(sequence: Sequence) -> int | None:
    """Return the token of the end marker that must come, for markers of one token."""
    thinking, output_ids = sequence.request.thinking, sequence.output_ids
    if thinking is None or thinking.budget is None:
        return None
    (start_id,), (end_id,) = thinking.start_ids, thinking.end_ids
    reasoning = output_ids if thinking.is_open else output_ids[1:]
    is_open = (thinking.is_open or output_ids[:1] == [start_id]) and end_id not in reasoning
    return end_id if is_open and len(reasoning) >= thinking.budget else None


def distribution(logits: list[float], sequence: Sequence) -> dict[int, float]:
    """Return token id to probability after every filter, most likely first, ties by id."""
    sampling = sequence.sampling
    logits = constrained(logits, sequence)
    ranked = sorted(range(len(logits)), key=lambda token_id: (-logits[token_id], token_id))
    if sampling.is_greedy:
        return {ranked[0]: 1.0}
    temperature = max(sampling.temperature, 0.01)
    best = logits[ranked[0]]
    weights = {token_id: math.exp((logits[token_id] - best) / temperature) for token_id in ranked}
    weights = {token_id: weight for token_id, weight in weights.items() if weight >= sampling.min_p and weight > 0}
    if 0 < sampling.top_k < len(logits):
        least = logits[ranked[sampling.top_k - 1]]
        weights = {token_id: weight for token_id, weight in weights.items() if logits[token_id] >= least}
    total = math.fsum(weights.values())
    kept, mass = {}, 0.0
    for token_id, weight in weights.items():
        if sampling.top_p < 1.0 and kept and mass >= sampling.top_p * total:
            break
        kept[token_id] = weight
        mass += weight
    return {token_id: weight / mass for token_id, weight in kept.items()}


def draw(logits: list[float], sequence: Sequence, shift: float = 0.0) -> int:
    """Return the token that the sequence draws, with its random number moved by `shift`."""
    probabilities = distribution(logits, sequence)
    if not (
        0 < sequence.sampling.top_k < len(logits) or sequence.sampling.top_p < 1.0 or sequence.sampling.min_p > 0.0
    ):
        probabilities = dict(sorted(probabilities.items()))
    number = uniform(sequence.sampling.seed, len(sequence.output_ids)) + shift
    upper = 0.0
    for token_id, probability in probabilities.items():
        upper += probability
        if upper > number:
            return token_id
    return list(probabilities)[-1]
