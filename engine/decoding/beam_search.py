"""Beam search over the most likely next tokens of each beam. Pure Python; knows neither the core nor the request.

The score of an ended beam is its summed log-probability / its number of tokens ** length penalty, with a final stop id
included. A round
1. extends every live beam by its most likely next tokens, and sorts by summed log-probability, ties by beam and id,
2. moves those among the best `width` that end there to the ended beams, and keeps the `width` best of these by score,
3. continues with the best `width` that do not end. The search is over when no beam is left, or when `width` beams have
   ended and no live one, at its present length, beats the worst of them.

These are the rules of transformers (`early_stopping=False`), so the results are the same. A stop string, which
transformers does not have, ends a beam like a stop id. An end that ranks below `width` is dropped; otherwise bad short
answers would fill the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.messages import SampledLogprobs

LEAST_LOGPROB = -9999.0
"""A token with this log-probability or less is forbidden."""
MAX_EXPONENT = 600.0
"""Keeps extreme length penalties within the range of floats."""
MAX_STOP_IDS = 7
"""At most this many stop ids increase the number of alternatives; with more, fewer than `width` beams may continue."""


@dataclass(frozen=True, slots=True)
class Beam:
    """The beginning of an answer. Each token links to the one before it, so beams share their common beginning."""

    logprob: float = 0.0
    num_tokens: int = 0
    tokens: TokenLink | None = None
    tail: bytes = b""
    """The end of the text in which a stop string may have begun (`EndRules`)."""

    @property
    def token_ids(self) -> list[int]:
        return [link.token_id for link in self.links()]

    def links(self) -> list[TokenLink]:
        """Return the tokens in order."""
        links, link = [], self.tokens
        while link is not None:
            links.append(link)
            link = link.before
        return links[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class TokenLink:
    """A token, its log-probability, the alternatives that it was chosen from, and the token before it."""

    token_id: int
    logprob: float
    alternatives: SampledLogprobs
    before: TokenLink | None


@dataclass(frozen=True, slots=True)
class EndedBeam:
    """A complete answer."""

    beam: Beam
    score: float
    reason: str
    """ "stop" (its last token is a stop id), "text" (a stop string) or "length"."""


@dataclass(frozen=True, slots=True)
class EndRules:
    """The conditions that end a beam. `text_of` returns the bytes that a token adds to the text."""

    stop_ids: frozenset[int]
    stops: tuple[bytes, ...]
    min_tokens: int
    max_tokens: int
    text_of: Callable[[int], bytes]

    def check(self, beam: Beam, token_id: int) -> tuple[str | None, bytes]:
        """Return why a beam with one more token ends (None if it does not), and its new `tail`."""
        num_tokens = beam.num_tokens + 1
        if token_id in self.stop_ids and num_tokens > self.min_tokens:
            return "stop", b""
        tail = b""
        if self.stops and num_tokens > self.min_tokens:
            text = beam.tail + self.text_of(token_id)
            if any(stop in text for stop in self.stops):
                return "text", b""
            tail_bytes = max(len(stop) for stop in self.stops) - 1
            tail = text[-tail_bytes:] if tail_bytes else b""
        return ("length" if num_tokens >= self.max_tokens else None), tail


class BeamSearch:
    """A search that starts with one empty beam. `live`: the beams that need next tokens, best first."""

    def __init__(self, width: int, length_penalty: float, ends: EndRules) -> None:
        self.live: list[Beam] = [Beam()]
        self._width = width
        self._length_penalty = length_penalty
        self._ends = ends
        self._ended: list[EndedBeam] = []

    @property
    def num_alternatives(self) -> int:
        """The number of most likely next tokens per beam that `advance` needs, so that `width` beams can continue."""
        return (1 + max(1, min(len(self._ends.stop_ids), MAX_STOP_IDS))) * self._width

    @property
    def is_over(self) -> bool:
        if not self.live:
            return True
        best = self.live[0]
        return len(self._ended) == self._width and self._score(best) <= self._ended[-1].score

    def advance(self, alternatives: Iterable[SampledLogprobs]) -> None:
        """Do one round, given the alternatives of each live beam."""
        candidates = [
            (beam.logprob + logprob, place, token_id, logprob, of_beam)
            for place, (beam, of_beam) in enumerate(zip(self.live, alternatives, strict=True))
            for token_id, logprob in zip(of_beam.top_ids, of_beam.top_logprobs, strict=True)
            if logprob > LEAST_LOGPROB
        ]
        candidates.sort(key=lambda candidate: (-candidate[0], candidate[1], candidate[2]))
        beams, self.live = self.live, []
        for rank, (total, place, token_id, logprob, of_beam) in enumerate(candidates[: self.num_alternatives]):
            if rank >= self._width and len(self.live) == self._width:
                break
            before = beams[place]
            reason, tail = self._ends.check(before, token_id)
            if reason is None and len(self.live) == self._width or reason is not None and rank >= self._width:
                continue
            beam = Beam(total, before.num_tokens + 1, TokenLink(token_id, logprob, of_beam, before.tokens), tail)
            if reason is None:
                self.live.append(beam)
            else:
                self._ended.append(EndedBeam(beam, self._score(beam), reason))
        self._ended.sort(key=lambda ended: -ended.score)
        del self._ended[self._width :]

    def best(self) -> list[EndedBeam]:
        """Return at most `width` ended beams, best first."""
        return list(self._ended)

    def _score(self, beam: Beam) -> float:
        exponent = self._length_penalty * math.log(beam.num_tokens)
        return beam.logprob / math.exp(min(max(exponent, -MAX_EXPONENT), MAX_EXPONENT))
