"""A run by beam search: in each round the core draws one token of each live beam and reports the alternatives to it.

A beam is a new short sequence in each round, whose blocks the core finds in its prefix cache. A new core gets the round
again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from engine.api import ChoiceFinished, Delta, Event, FinishReason, LogprobOptions, Payload, SamplingParams, Usage
from engine.decoding.beam_search import BeamSearch, EndedBeam, TokenLink
from engine.messages import AddSequence, SampledLogprobs, SequenceOutput
from engine.requests.runs.buffered import BufferedRun
from engine.requests.runs.run import FAILED, Choice, prompt_only

FINISH_OF_END = {"stop": "stop", "length": "length", "text": None}
"""The `SequenceOutput.finish` that stands for the end of a beam; the pipeline finds stop strings itself."""


@dataclass(eq=False, kw_only=True)
class BeamRun(BufferedRun):
    """A run whose `choices` are the places of the beams; at the end they get the texts of the best beams."""

    search: BeamSearch
    answers: dict[int, SampledLogprobs] = field(default_factory=dict)
    """What the core has drawn in this round, by `seq_id`."""
    best: list[EndedBeam] | None = None
    """The best beams, once the search is over."""
    raw: dict[int, list[SampledLogprobs]] = field(default_factory=dict)
    """By `seq_id`: log-probabilities of the best beams from raw logits, computed again if the search used others."""
    dead_end: str = ""
    """The request field that left a beam no token to go on with."""

    def live_ids(self) -> list[int]:
        """Return the sequences of this round that have no output yet."""
        if self.is_ended:
            return []
        num_places = len(self.search.live if self.best is None else self.best)
        return [choice.seq_id for choice in self.choices[:num_places] if choice.seq_id not in self.answers]

    def sequences(self) -> list[AddSequence]:
        """Return what is left to compute in this round."""
        self.needs_core = False
        unanswered = set(self.live_ids())
        if self.best is not None:
            return [
                self._scored(*pair)
                for pair in zip(super().sequences(), self.best, strict=False)
                if pair[0].seq_id in unanswered
            ]
        options = self.request.logprobs
        num_alternatives = options.top if options.top < 0 else max(options.top, self.search.num_alternatives)
        return [
            dataclasses.replace(
                sequence,
                output_ids=beam.token_ids,
                max_tokens=beam.num_tokens + 1,
                sampling=dataclasses.replace(sequence.sampling, temperature=0.0),
                logprobs=LogprobOptions(True, num_alternatives, prompt=sequence.logprobs.prompt),
                draft_ids=[],
                scores_processed=True,
            )
            for sequence, beam in zip(super().sequences(), self.search.live, strict=False)
            if sequence.seq_id in unanswered
        ]

    def usage(self) -> Usage:
        """Return the counts of the answers; until these exist, of the beams as they stand."""
        usage = super().usage()
        if usage.completion_tokens:
            return usage
        return dataclasses.replace(usage, completion_tokens=sum(beam.num_tokens for beam in self.search.live))

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        self._record(output, now)
        self.raw.setdefault(choice.seq_id, []).extend(output.prompt_logprobs or ())
        if output.finish is None:
            return []
        self.answers[choice.seq_id] = output.logprobs[0] if output.logprobs else SampledLogprobs(0.0)
        if output.finish == "failed":
            self.dead_end = output.failed_param
            self.termination = self.termination or (None if output.failed_param else FAILED)
        if self.termination is FAILED:
            return [self.end(now)]
        if self.live_ids():
            return []
        events = self._end_round() if self.termination is None else []
        return events if self.needs_core else [*events, self.end(now)]

    def _end_round(self) -> list[Event]:
        """Begin the next round, or return the events of the answers."""
        if self.best is None:
            live = self.choices[: len(self.search.live)]
            self.search.advance([self.answers[choice.seq_id] for choice in live])
            self.answers, self.raw = {}, {}
            self.needs_core = not self.search.is_over
            if self.needs_core:
                return []
            self.best = self.search.best()
            if not self.best:
                self.termination = self._no_token_left(self.dead_end) if self.dead_end else FAILED
                return []
            self.needs_core = self._reports_other_values()
            if self.needs_core:
                return []
        return self.release([payload for place in range(len(self.choices)) for payload in self._answer(place)])

    def _reports_other_values(self) -> bool:
        """Return True if the reported log-probabilities, which are of raw logits, differ from those of the search."""
        sampling, plain = self.request.sampling, SamplingParams()
        penalties = ("presence_penalty", "frequency_penalty", "repetition_penalty")
        names = (*penalties, "logit_bias", "allowed_token_ids", "bad_words", "processors")
        is_plain = all(getattr(sampling, name) == getattr(plain, name) for name in names)
        is_free = not self.request.stop.min_tokens and self.request.thinking_token_budget is None
        return self.request.logprobs.enabled and not (is_plain and is_free)

    def _scored(self, sequence: AddSequence, ended: EndedBeam) -> AddSequence:
        """Return a sequence that scores the tokens of a beam as if they were a prompt."""
        prompt_ids = self.prepared.prompt_ids + ended.beam.token_ids
        scored = dataclasses.replace(sequence, prompt_ids=prompt_ids, output_ids=[])
        return prompt_only(scored, LogprobOptions(prompt=self.request.logprobs.top))

    def _answer(self, place: int) -> list[Payload]:
        """Return all payloads of a choice."""
        assert self.best is not None
        choice = self.choices[place]
        if place >= len(self.best):  # the request allows fewer different answers than it wants
            return [ChoiceFinished(place, FinishReason.STOP)]
        ended = self.best[place]
        links = ended.beam.links()
        raw = self.raw.get(choice.seq_id)
        entries = raw[-len(links) :] if raw else [self._entry(link) for link in links]
        payloads: list[Delta | ChoiceFinished] = choice.pipeline.feed(
            [link.token_id for link in links], entries, FINISH_OF_END[ended.reason]
        )
        if not choice.pipeline.finished:
            payloads += choice.pipeline.feed([], finish="length")
        end = payloads[-1]
        if ended.reason == "stop" and isinstance(end, ChoiceFinished) and end.reason is FinishReason.STOP:
            # The stop id is named even if it is the primary EOS.
            stop_reason = links[-1].token_id if end.stop_reason is None else end.stop_reason
            payloads[-1] = dataclasses.replace(end, stop_reason=stop_reason)
        return [*payloads]

    def _entry(self, link: TokenLink) -> SampledLogprobs:
        top = self.request.logprobs.top
        count = len(link.alternatives.top_ids) if top < 0 else top
        return SampledLogprobs(link.logprob, link.alternatives.top_ids[:count], link.alternatives.top_logprobs[:count])
