"""From the ids that the core sampled for one choice to its events: detokenise, find stop strings, cut, attach log-probabilities.

One pipeline per choice, fed by the engine's receiver thread with the news of a step. It decides the end by stop string; the core
decides the end by stop id and by length.
"""

from __future__ import annotations

import math

from engine.api import ChoiceFinished, Delta, FinishReason, TokenLogprob, TopLogprob
from engine.api.sampling import LogprobOptions, StopRules
from engine.messages import SampledLogprobs
from engine.outputs.detokenizer import Detokenizer
from engine.outputs.stop import StopFinder, StopMatch
from engine.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot say."""


class ChoicePipeline:
    """`num_tokens` counts the tokens of the answer so far: up to and including the one that ended it."""

    def __init__(self, choice: int, tokenizer: Tokenizer, stop: StopRules, logprobs: LogprobOptions) -> None:
        self.choice = choice
        self.num_tokens = 0
        self.finished = False
        self._tokenizer = tokenizer
        self._stop = stop
        self._logprobs = logprobs
        self._detokenizer = Detokenizer(tokenizer, stop.skip_special_tokens)
        self._stop_finder = StopFinder(stop.stop, stop.include_stop_str_in_output)
        self._speller = Detokenizer(tokenizer, skip_special_tokens=False) if logprobs.enabled else None

    def feed(
        self, token_ids: list[int], logprobs: list[SampledLogprobs] | None = None, finish: str | None = None
    ) -> list[Delta | ChoiceFinished]:
        """Events for new tokens. `finish` is the core's word on the last of them: None, "stop" or "length".

        `logprobs` has an entry per token; None when tokens of an earlier attempt are replayed, whose entries went out then.

        Tokens after the one that completes a stop string are dropped.
        """
        used: list[int] = []
        text: list[str] = []
        end: ChoiceFinished | None = None
        for index, token_id in enumerate(token_ids):
            used.append(token_id)
            self.num_tokens += 1
            is_stop_id = finish == "stop" and index == len(token_ids) - 1
            if is_stop_id:
                text.append(self._stop_id_text(token_id))
                end = ChoiceFinished(self.choice, FinishReason.STOP, self._stop_id_reason(token_id), self._flush())
                break
            piece = self._stop_finder.feed(self._detokenizer.feed(token_id), search=self.num_tokens > self._stop.min_tokens)
            if isinstance(piece, StopMatch):
                text.append(piece.text)
                end = ChoiceFinished(self.choice, FinishReason.STOP, piece.stop)
                break
            text.append(piece)
        if end is None and finish == "length":
            end = ChoiceFinished(self.choice, FinishReason.LENGTH, None, self._flush())
        self.finished = end is not None
        events: list[Delta | ChoiceFinished] = []
        if used:
            events.append(Delta(self.choice, tuple(used), "".join(text), self._entries(used, logprobs)))
        if end is not None:
            events.append(end)
        return events

    def _flush(self) -> str:
        """Text that was held back, at an end that no stop string has made; a stop string may still be completed by half a character."""
        last = self._stop_finder.feed(self._detokenizer.flush())
        return last.text if isinstance(last, StopMatch) else last + self._stop_finder.flush()

    def _stop_id_reason(self, token_id: int) -> int | None:
        """The id, but None for the primary EOS."""
        primary = self._tokenizer.eos_ids[:1]
        return None if (token_id,) == primary and token_id not in self._stop.stop_token_ids else token_id

    def _stop_id_text(self, token_id: int) -> str:
        """The text of a stop token is dropped, unless stop texts were asked for."""
        if not self._stop.include_stop_str_in_output:
            return ""
        return self._stop_finder.flush() + self._detokenizer.feed(token_id)

    def _entries(self, token_ids: list[int], logprobs: list[SampledLogprobs] | None) -> tuple[TokenLogprob, ...] | None:
        if self._speller is None:
            return None
        if logprobs is None:
            for token_id in token_ids:
                self._speller.feed(token_id)
            return None
        return tuple(self._entry(token_id, sampled) for token_id, sampled in zip(token_ids, logprobs, strict=False))

    def _entry(self, token_id: int, sampled: SampledLogprobs) -> TokenLogprob:
        """`token` is the text with the bytes of the tokens before it: "" while a character is incomplete."""
        assert self._speller is not None
        top = tuple(
            TopLogprob(top_id, _finite(value), self._speller.preview(top_id), self._tokenizer.token_bytes(top_id))
            for top_id, value in zip(sampled.top_ids, sampled.top_logprobs, strict=True)
        )
        text = self._speller.feed(token_id)
        return TokenLogprob(token_id, _finite(sampled.logprob), text, self._tokenizer.token_bytes(token_id), top)


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST_LOGPROB
