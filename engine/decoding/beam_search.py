"""Beam search over the most likely next tokens of each beam. Pure Python; knows neither the core nor the request.

The score of an ended beam is its summed log-probability / its number of tokens ** length penalty, a final stop id included. A round
1. joins every live beam with its most likely next tokens, and sorts by summed log-probability, ties by beam and id,
2. takes those among the best `width` that end there as ended beams, of which the `width` best by score are kept,
3. goes on with the best `width` that do not end.
The search is over when no beam is left, or when `width` have ended and no live one, at its present length, beats the worst of them.

These are the rules of transformers (`early_stopping=False`), so that its results are ours; beams that end at a stop string, which it does
not know, are treated like those that end at a stop id. An end that only ranks behind `width` is dropped: were it taken, bad short
answers would fill the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from engine.messages import SampledLogprobs

LEAST_LOGPROB = -9999.0
"""A token with no more than this is forbidden."""
MAX_EXPONENT = 600.0
"""Keeps extreme length penalties within the range of numbers."""
MAX_STOP_IDS = 7
"""Stop ids that are allowed for when alternatives are asked for; more may leave fewer than `width` beams that go on."""


@dataclass(frozen=True, slots=True)
class Beam:
    """A beginning of an answer. `tokens` links each token to the one before it, so that beams share what they have in common."""

    logprob: float = 0.0
    num_tokens: int = 0
    tokens: TokenLink | None = None
    tail: bytes = b""
    """What `EndRules` must remember of the text."""

    @property
    def token_ids(self) -> list[int]:
        return [link.token_id for link in self.links()]

    def links(self) -> list[TokenLink]:
        """In order."""
        links, link = [], self.tokens
        while link is not None:
            links.append(link)
            link = link.before
        return links[::-1]


@dataclass(frozen=True, slots=True, eq=False)
class TokenLink:
    """A token, its log-probability and the alternatives it was chosen from."""

    token_id: int
    logprob: float
    alternatives: SampledLogprobs
    before: TokenLink | None


@dataclass(frozen=True, slots=True)
class EndedBeam:
    """`reason`: "stop" (its last token is a stop id), "text" (a stop string) or "length"."""

    beam: Beam
    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class EndRules:
    """What ends a beam. `text_of`: the bytes that a token adds to the text."""

    stop_ids: frozenset[int]
    stops: tuple[bytes, ...]
    min_tokens: int
    max_tokens: int
    text_of: Callable[[int], bytes]
    tail_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tail_bytes", max((len(stop) for stop in self.stops), default=1) - 1)

    def check(self, beam: Beam, token_id: int) -> tuple[str | None, bytes]:
        """Why a beam with one more token ends, if it does, and the end of its text, in which a stop string may have begun.

        Bytes are compared: a stop string is found in UTF-8 exactly where it is found in the text.
        """
        num_tokens = beam.num_tokens + 1
        if token_id in self.stop_ids and num_tokens > self.min_tokens:
            return "stop", b""
        tail = b""
        if self.stops and num_tokens > self.min_tokens:
            text = beam.tail + self.text_of(token_id)
            if any(stop in text for stop in self.stops):
                return "text", b""
            tail = text[len(text) - self.tail_bytes :] if len(text) > self.tail_bytes else text
        return ("length" if num_tokens >= self.max_tokens else None), tail


class BeamSearch:
    """Starts with one empty beam. `live`: the beams that need next tokens, best first."""

    def __init__(self, width: int, length_penalty: float, ends: EndRules) -> None:
        self.live: list[Beam] = [Beam()]
        self._width = width
        self._length_penalty = length_penalty
        self._ends = ends
        self._ended: list[EndedBeam] = []

    @property
    def num_alternatives(self) -> int:
        """How many of the most likely next tokens of each beam `advance` wants, so that `width` can go on though others end."""
        return (1 + max(1, min(len(self._ends.stop_ids), MAX_STOP_IDS))) * self._width

    @property
    def is_over(self) -> bool:
        if not self.live:
            return True
        best = self.live[0]
        return len(self._ended) == self._width and self._score(best) <= self._ended[-1].score

    def advance(self, alternatives: Iterable[SampledLogprobs]) -> None:
        """One round, with the alternatives of each live beam."""
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
        """At most `width` beams that have ended, best first."""
        return list(self._ended)

    def _score(self, beam: Beam) -> float:
        exponent = self._length_penalty * math.log(beam.num_tokens)
        return beam.logprob / math.exp(min(max(exponent, -MAX_EXPONENT), MAX_EXPONENT))
