"""Which kind of run serves a request: choices on their own, the best of several, beams, or none at all."""

from __future__ import annotations

from typing import Any

from engine.api import GenerationRequest, Task
from engine.decoding.beam_search import BeamSearch, EndRules
from engine.requests.runs.beams import BeamRun
from engine.requests.runs.buffered import RankedRun
from engine.requests.runs.non_generating import EmbedRun, PromptRun, TokenizeRun
from engine.requests.runs.run import Run
from engine.tokenizers.tokenizer import Tokenizer


def make_run(tokenizer: Tokenizer, request: GenerationRequest, **fields: Any) -> Run:
    """`fields`: those of `Run`."""
    if request.task is Task.READ:
        return TokenizeRun(request=request, **fields)
    if request.task is Task.EMBED:
        return EmbedRun(request=request, **fields)
    if request.stop.max_tokens == 0:
        return PromptRun(request=request, **{**fields, "choices": fields["choices"][:1]})
    if request.beam is not None:
        ends = EndRules(
            stop_ids=frozenset(fields["stop_ids"]),
            stops=tuple(stop.encode() for stop in request.stop.stop),
            min_tokens=request.stop.min_tokens,
            max_tokens=fields["max_tokens"],
            text_of=lambda token_id: _text_of(tokenizer, request, token_id),
        )
        search = BeamSearch(request.num_choices, request.beam.length_penalty, ends)
        return BeamRun(request=request, search=search, **fields)
    if (request.best_of or 1) > 1:
        return RankedRun(request=request, num_reported=request.num_choices, **fields)
    return Run(request=request, **fields)


def _text_of(tokenizer: Tokenizer, request: GenerationRequest, token_id: int) -> bytes:
    is_left_out = request.stop.skip_special_tokens and tokenizer.is_special(token_id)
    return b"" if is_left_out else tokenizer.token_bytes(token_id)
