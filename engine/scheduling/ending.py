"""Why a sequence ends with its last token. Asked after every single token, also where a step takes several at once."""

from __future__ import annotations

from engine.sequence import Sequence


def end_reason(sequence: Sequence, capacity_tokens: int) -> str | None:
    """What ends the sequence: "stop" (its last token is a stop id), "length" (its limit, or that of the cache), or None."""
    output_ids = sequence.output_ids
    if output_ids[-1] in sequence.stop_ids and len(output_ids) > sequence.request.stop.min_tokens:
        return "stop"
    if len(output_ids) >= sequence.max_tokens or sequence.num_tokens > capacity_tokens:
        return "length"
    return None
