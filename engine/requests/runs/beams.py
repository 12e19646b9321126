"""A run that is searched with beams: it asks the core for one token of each beam at a time, and for what else could have come there.

Each round sends a short sequence per live beam, whose blocks the core finds in its prefix cache. A new core is asked the round again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from engine.api import (
    ChoiceFinished,
    Delta,
    Event,
    FinishReason,
    LogprobOptions,
    Payload,
    SamplingParams,
    StopRules,
    Usage,
)
from engine.decoding.beam_search import BeamSearch, EndedBeam, TokenLink
from engine.messages import AddSequence, SampledLogprobs, SequenceOutput
from engine.requests.runs.buffered import BufferedRun
from engine.requests.runs.run import FAILED, Choice

CORE_WORDS = {"stop": "stop", "length": "length", "text": None}
"""What the core would say of a beam's end; a stop string is the pipeline's own business."""


@dataclass(eq=False, kw_only=True)
class BeamRun(BufferedRun):
    """`choices` are the places of the beams, each with one sequence per round; at the end they get the texts of the best beams.

    `answers`: what the core has said in this round, by `seq_id`. `found`: the best beams, once the search is over; then their
    log-probabilities are computed again (`raw`, by `seq_id`) where those of the search are not the ones to report.
    """

    search: BeamSearch
    answers: dict[int, SampledLogprobs] = field(default_factory=dict)
    found: list[EndedBeam] | None = None
    raw: dict[int, list[SampledLogprobs]] = field(default_factory=dict)
    dead_end: str = ""
    """The request field that left a beam no token to go on with."""

    def live_ids(self) -> list[int]:
        """The sequences of this round that have not answered."""
        num_places = len(self.search.live if self.found is None else self.found)
        return (
            []
            if self.is_ended
            else [choice.seq_id for choice in self.choices[:num_places] if choice.seq_id not in self.answers]
        )

    def sequences(self) -> list[AddSequence]:
        """What is left to compute in this round."""
        self.has_more = False
        unanswered = set(self.live_ids())
        if self.found is not None:
            return [
                self._scored(*pair)
                for pair in zip(super().sequences(), self.found, strict=False)
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
        """Of the answers; until these are there, of the beams as they stand."""
        usage = super().usage()
        if usage.completion_tokens:
            return usage
        return dataclasses.replace(usage, completion_tokens=sum(beam.num_tokens for beam in self.search.live))

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        self._note(output, now)
        self.raw.setdefault(choice.seq_id, []).extend(output.prompt_logprobs or ())
        if output.finish is None:
            return []
        self.answers[choice.seq_id] = output.logprobs[0] if output.logprobs else SampledLogprobs(0.0)
        if output.finish == "failed":
            self.dead_end = output.failed_param
            self.ending = self.ending or (None if output.failed_param else FAILED)
        if self.ending is FAILED:
            return [self.end(now)]
        if self.live_ids():
            return []
        events = self._end_round() if self.ending is None else []
        return events if self.has_more else [*events, self.end(now)]

    def _end_round(self) -> list[Event]:
        """Go on to the next round, or to the answers."""
        if self.found is None:
            live = self.choices[: len(self.search.live)]
            self.search.advance([self.answers[choice.seq_id] for choice in live])
            self.answers, self.raw = {}, {}
            self.has_more = not self.search.is_over
            if self.has_more:
                return []
            self.found = self.search.best()
            if not self.found:
                self.ending = self._no_token_left(self.dead_end) if self.dead_end else FAILED
                return []
            self.has_more = self._reports_other_values()
            if self.has_more:
                return []
        return self.release([payload for place in range(len(self.choices)) for payload in self._answer(place)])

    def _reports_other_values(self) -> bool:
        """Whether reported log-probabilities, from raw logits, differ from those of the search."""
        sampling, plain = self.request.sampling, SamplingParams()
        penalties = ("presence_penalty", "frequency_penalty", "repetition_penalty")
        names = (*penalties, "logit_bias", "allowed_token_ids", "bad_words", "processors")
        is_plain = all(getattr(sampling, name) == getattr(plain, name) for name in names)
        is_free = not self.request.stop.min_tokens and self.request.thinking_token_budget is None
        return self.request.logprobs.enabled and not (is_plain and is_free)

    def _scored(self, sequence: AddSequence, ended: EndedBeam) -> AddSequence:
        """Have the tokens of a beam scored as if they were a prompt."""
        return dataclasses.replace(
            sequence,
            prompt_ids=self.prompt_ids + ended.beam.token_ids,
            output_ids=[],
            max_tokens=1,
            stop=StopRules(),
            sampling=SamplingParams(temperature=0.0, seed=0),
            logprobs=LogprobOptions(prompt=self.request.logprobs.top),
            draft_ids=[],
            bad_word_ids=[],
            thinking=None,
        )

    def _answer(self, place: int) -> list[Payload]:
        """All that is said of a choice."""
        assert self.found is not None
        choice = self.choices[place]
        if place >= len(self.found):  # the request allows fewer different answers than it wants
            return [ChoiceFinished(place, FinishReason.STOP)]
        ended = self.found[place]
        links = ended.beam.links()
        entries = (
            self.raw[choice.seq_id][-len(links) :]
            if self.raw.get(choice.seq_id)
            else [self._entry(link) for link in links]
        )
        said: list[Delta | ChoiceFinished] = choice.pipeline.feed(
            [link.token_id for link in links], entries, CORE_WORDS[ended.reason]
        )
        if not choice.pipeline.finished:
            said += choice.pipeline.feed([], finish="length")
        return [
            self._with_stop_id(payload, links[-1].token_id) if ended.reason == "stop" else payload for payload in said
        ]

    def _entry(self, link: TokenLink) -> SampledLogprobs:
        top = self.request.logprobs.top
        count = len(link.alternatives.top_ids) if top < 0 else top
        return SampledLogprobs(link.logprob, link.alternatives.top_ids[:count], link.alternatives.top_logprobs[:count])

    def _with_stop_id(self, payload: Delta | ChoiceFinished, token_id: int) -> Delta | ChoiceFinished:
        """A beam that ended at a stop id names it, the primary EOS included."""
        if isinstance(payload, ChoiceFinished) and payload.reason is FinishReason.STOP and payload.stop_reason is None:
            return dataclasses.replace(payload, stop_reason=token_id)
        return payload
