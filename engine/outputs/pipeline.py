"""From sampled ids to events of one choice: detokenise, find stop strings, separate reasoning, content and tool calls.

The engine's receiver thread feeds one pipeline per choice with the tokens of each step. The pipeline ends the answer at
a stop string, at repetition and after a single call; the core ends it at a stop id, at the length limit and when the
grammar is complete. Ids are processed one by one, so the output after each depends on the ids alone. That lets another
worker continue an answer where it stopped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.api import ChoiceFinished, Delta, FinishReason, TokenLogprob, ToolMode, TopLogprob
from engine.api.request import LogprobOptions, StopRules
from engine.messages import SampledLogprobs
from engine.outputs.detokenizer import Detokenizer
from engine.outputs.parsing import ChoiceParsers
from engine.outputs.pieces import ContentText, Piece, ReasoningText
from engine.outputs.stop import RepetitionFinder, StopFinder, StopMatch
from engine.outputs.writing import OutputWriter
from engine.tokenizers.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0
"""Replaces minus infinity, which JSON cannot express."""

CORE_REASONS = {"stop": FinishReason.STOP, "complete": FinishReason.STOP, "length": FinishReason.LENGTH}
"""The core's reasons for the regular end of a sequence."""

REPEATED = "repetition_detected"


@dataclass(frozen=True, slots=True)
class _End:
    """Why the answer ends."""

    reason: FinishReason
    stop_reason: str | int | None = None
    is_cut: bool = False
    """Drop the text that the search for stop strings holds back."""


class ChoicePipeline:
    """The processing of one choice."""

    def __init__(
        self,
        choice: int,
        tokenizer: Tokenizer,
        stop: StopRules,
        logprobs: LogprobOptions,
        parsers: ChoiceParsers | None = None,
    ) -> None:
        self.choice = choice
        self.num_tokens = 0
        """Tokens of the answer so far, including the one that ended it."""
        self.num_reasoning_tokens = 0
        """Tokens of the reasoning, including its markers."""
        self.finished = False
        self._tokenizer = tokenizer
        self._stop = stop
        self._logprobs = logprobs
        self._detokenizer = Detokenizer(tokenizer, stop.skip_special_tokens, stop.spaces_between_special_tokens)
        self._stop_finder = StopFinder(stop.stop, stop.include_stop_str_in_output)
        self._repetition = RepetitionFinder(stop.repetition) if stop.repetition else None
        self._parsers = parsers or ChoiceParsers()
        self._reasoning = self._parsers.reasoning
        self._writer = OutputWriter(self._parsers)
        self._speller = Detokenizer(tokenizer, skip_special_tokens=False) if logprobs.enabled else None
        self._follow_reasoning()

    def feed(
        self, token_ids: list[int], logprobs: list[SampledLogprobs] | None = None, finish: str | None = None
    ) -> list[Delta | ChoiceFinished]:
        """Return the events for new tokens. Tokens after one that ends the answer here are dropped.

        `finish` is the core's finish reason for the last token; only those of CORE_REASONS end the choice here.
        `logprobs` has an entry per token, or is None for replayed tokens of an earlier attempt, whose entries were sent
        then.
        """
        used: list[int] = []
        end: _End | None = None
        for index, token_id in enumerate(token_ids):
            used.append(token_id)
            end = self._feed_token(token_id, is_stop_id=finish == "stop" and index == len(token_ids) - 1)
            if end is not None:
                break
        if end is None and finish in CORE_REASONS:
            end = _End(CORE_REASONS[finish])
        events: list[Delta | ChoiceFinished] = []
        if used:
            delta = self._writer.drain()
            events.append(
                Delta(self.choice, tuple(used), delta.text, self._entries(used, logprobs), delta.reasoning, delta.calls)
            )
        if end is not None:
            events.append(self._finish(end))
        return events

    def _feed_token(self, token_id: int, is_stop_id: bool) -> _End | None:
        """Process one token; return why the answer ends with it, or None."""
        self.num_tokens += 1
        is_repeating = self._repetition is not None and self._repetition.feed(token_id)
        was_open = self._is_open
        end = self._feed_text(token_id, is_stop_id)
        if was_open or self._is_open:
            self.num_reasoning_tokens += 1
        if end is None and is_repeating and self.num_tokens >= self._stop.min_tokens:
            return _End(FinishReason.REPETITION, REPEATED)
        return end

    def _feed_text(self, token_id: int, is_stop_id: bool) -> _End | None:
        if is_stop_id:
            self._parse(self._stop_id_text(token_id))
            return _End(FinishReason.STOP, self._stop_id_reason(token_id))
        piece = self._stop_finder.feed(self._detokenizer.feed(token_id), search=self.num_tokens > self._stop.min_tokens)
        if isinstance(piece, StopMatch):
            self._parse(piece.text)
            return _End(FinishReason.STOP, piece.stop, is_cut=True)
        self._parse(piece)
        return _End(FinishReason.STOP, is_cut=True) if self._writer.is_full else None

    @property
    def _is_open(self) -> bool:
        return self._reasoning is not None and self._reasoning.is_open

    def _parse(self, text: str) -> None:
        """Parse text that no stop string can withdraw any more."""
        if not text:
            return
        if self._reasoning is None:
            self._writer.write_content(text)
        else:
            self._write(self._reasoning.feed(text), self._reasoning.is_shown)
            self._follow_reasoning()

    def _write(self, pieces: list[Piece], is_shown: bool) -> None:
        """Write the pieces of the reasoning parser."""
        for piece in pieces:
            if isinstance(piece, ContentText):
                self._writer.write_content(piece.text)
            elif isinstance(piece, ReasoningText):
                write = self._writer.write_text if is_shown else self._writer.write_reasoning
                write(piece.text)

    def _follow_reasoning(self) -> None:
        """Drop the reasoning parser once reasoning is over, and update the special tokens that parsers read.

        Markers of reasoning are ordinary special tokens after its end, markers of calls while it is open.
        """
        if self._reasoning is not None and self._reasoning.is_over:
            self._reasoning = None
        self._detokenizer.controls = self._parsers.control_ids(self._reasoning)

    def _finish(self, end: _End) -> ChoiceFinished:
        """End the choice; return the event with the text that was held back."""
        self.finished = True
        if not end.is_cut:
            self._parse(self._flush_text())
        if self._reasoning is not None:
            self._write(self._reasoning.flush(), self._reasoning.is_shown)
        self._writer.flush()
        delta = self._writer.drain()
        is_called = self._writer.num_calls > 0 and self._parsers.mode is not ToolMode.NAMED
        reason = FinishReason.TOOL_CALLS if end.reason is FinishReason.STOP and is_called else end.reason
        return ChoiceFinished(self.choice, reason, end.stop_reason, delta.text, delta.reasoning, delta.calls)

    def _flush_text(self) -> str:
        """Return the text that was held back. An incomplete character may still complete a stop string."""
        last = self._stop_finder.feed(self._detokenizer.flush())
        return last.text if isinstance(last, StopMatch) else last + self._stop_finder.flush()

    def _stop_id_reason(self, token_id: int) -> int | None:
        """Return the id, or None for the primary EOS, unless the request ignores EOS and lists it as a stop id."""
        is_primary = (token_id,) == self._tokenizer.eos_ids[:1]
        return None if is_primary and not self._stop.ignore_eos else token_id

    def _stop_id_text(self, token_id: int) -> str:
        """Return the text of a stop token if the request includes stop texts, else ""."""
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
        """Make the entry of one token. Its text includes pending bytes of earlier tokens; "" within a character."""
        assert self._speller is not None
        top = tuple(
            TopLogprob(top_id, _finite(value), self._speller.preview(top_id), self._tokenizer.token_bytes(top_id))
            for top_id, value in zip(sampled.top_ids, sampled.top_logprobs, strict=True)
        )
        text = self._speller.feed(token_id)
        return TokenLogprob(token_id, _finite(sampled.logprob), text, self._tokenizer.token_bytes(token_id), top)


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LEAST_LOGPROB
