"""A run that writes down speech: segments of tokens become segments of text, with words if they are asked for."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from engine.api import (
    Admitted,
    Event,
    SegmentSpoken,
    SpokenWord,
    TokenLogprob,
    Transcribed,
    Usage,
)
from engine.inputs.sound import Sound
from engine.messages import AddSequence, MediaSpan, SequenceOutput, SpeechOptions, SpokenSegment
from engine.requests.runs.run import FAILED, Choice, Run
from engine.tokenizers.tokenizer import Tokenizer

WITHOUT_SPACES = frozenset(("zh", "ja", "th", "lo", "my", "yue"))
"""Languages whose words are not parted: there each token that can be spelled is one."""
OPENING = "\"'“¿([{-«"
"""Marks that belong to the word that follows."""


@dataclass(eq=False, kw_only=True)
class TranscribeRun(Run):
    """A run of one sequence. After a takeover, or with another core, it begins anew and publishes what is not known.

    Another device may cut the sound otherwise, so that what is known goes by its times.
    """

    sound: Sound
    speech: SpeechOptions
    tokenizer: Tokenizer
    last: SegmentSpoken | None = None
    """The last segment that is in the log, or on its way to it."""
    is_catching_up: bool = False
    """The present core has made no segment yet that is not known."""
    num_tokens: int = 0
    """Of the published segments."""

    def sequences(self) -> list[AddSequence]:
        self.is_catching_up = True
        span = MediaSpan(self.sound.definition.key, 0, 0)
        return [dataclasses.replace(one, media=[span], speech=self.speech) for one in super().sequences()]

    def replay(self, events: tuple[Event, ...]) -> list[Event]:
        """Take what is logged; a run whose text is complete only ends."""
        for event in events:
            if isinstance(event.payload, SegmentSpoken):
                self.last = event.payload
                self.num_tokens += len(event.payload.token_ids)
            if isinstance(event.payload, Transcribed):
                for choice in self.choices:
                    choice.is_live = False
        return []

    def admitted(self) -> Admitted:
        return dataclasses.replace(super().admitted(), num_prompt_tokens=self.usage().prompt_tokens)

    def usage(self) -> Usage:
        num_prompt = len(self.prepared.prompt_ids)
        return Usage(
            prompt_tokens=num_prompt + self.sound.num_tokens,
            completion_tokens=self.num_tokens,
            audio_tokens=self.sound.num_tokens,
            audio_seconds=round(self.sound.seconds, 3),
        )

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        self._record(output, now)
        events = []
        for segment in map(self._without_special, output.segments):
            spoken = self._spoken(segment)
            if self.termination is None and spoken.token_ids and not self._is_known(spoken):
                self.last, self.is_catching_up = spoken, False
                self.num_tokens += len(spoken.token_ids)
                events.append(self.event(spoken))
        if events and self.timings.first_token_at is None:
            self.timings = dataclasses.replace(self.timings, first_token_at=now)
        if output.finish is None:
            return events
        choice.is_live = False
        if output.finish != "transcribed" and self.termination is None:
            self.termination = FAILED
        if self.termination is None:
            events.append(self.event(Transcribed(output.language, round(self.sound.seconds, 3))))
        return [*events, self.end(now)]

    def _is_known(self, spoken: SegmentSpoken) -> bool:
        """Return True for what an earlier attempt has published: segments begin one after the other."""
        last = self.last if self.is_catching_up else None
        return last is not None and (spoken.start_s <= last.start_s or spoken.start_s < last.end_s)

    def _without_special(self, segment: SpokenSegment) -> SpokenSegment:
        """Leave out what is no text: the model may write marks of languages and tasks."""
        places = [place for place, one in enumerate(segment.token_ids) if not self.tokenizer.is_special(one)]
        if len(places) == len(segment.token_ids):
            return segment
        has_times = bool(segment.token_starts)
        return dataclasses.replace(
            segment,
            token_ids=[segment.token_ids[place] for place in places],
            logprobs=[segment.logprobs[place] for place in places],
            token_starts=[segment.token_starts[place] for place in places] if has_times else [],
            token_ends=[segment.token_ends[place] for place in places] if has_times else [],
        )

    def _spoken(self, segment: SpokenSegment) -> SegmentSpoken:
        text = b"".join(map(self.tokenizer.token_bytes, segment.token_ids)).decode("utf-8", "replace")
        written = text.encode()
        asked = self.request.speech
        logprobs: tuple[TokenLogprob, ...] = ()
        if asked is not None and asked.wants_logprobs:
            spelled = [(token_id, self.tokenizer.token_bytes(token_id)) for token_id in segment.token_ids]
            logprobs = tuple(
                TokenLogprob(token_id, logprob, data.decode("utf-8", "replace"), data)
                for (token_id, data), logprob in zip(spelled, segment.logprobs, strict=True)
            )
        return SegmentSpoken(
            start_s=round(segment.start_s, 3),
            end_s=round(min(max(segment.start_s, segment.end_s), max(segment.start_s, self.sound.seconds)), 3),
            text=text,
            token_ids=tuple(segment.token_ids),
            mean_logprob=segment.mean_logprob,
            compression_ratio=len(written) / len(zlib.compress(written)),
            silence=segment.silence,
            temperature=segment.temperature,
            seek=segment.seek,
            words=tuple(spoken_words(segment, self.tokenizer)) if segment.token_starts else (),
            logprobs=logprobs,
        )


def spoken_words(segment: SpokenSegment, tokenizer: Tokenizer) -> Iterator[SpokenWord]:
    """Yield the words of a segment: from a space to the next, or, in languages without spaces, each character's tokens.

    Marks of punctuation belong to the word before them, opening ones to that behind.
    """
    has_spaces = segment.language not in WITHOUT_SPACES
    text, start_s, end_s = "", 0.0, 0.0
    for piece, began_s, ended_s in _pieces(segment, tokenizer):
        bare = piece.strip()
        is_mark = bool(bare) and not any(map(str.isalnum, bare))
        opens = is_mark and bare in OPENING and piece.startswith(" ")
        begins = (piece.startswith(" ") if has_spaces else True) and not (is_mark and not opens)
        if begins and text and not _is_opening(text):
            yield SpokenWord(text, round(start_s, 3), round(end_s, 3))
            text = ""
        if not text:
            start_s = began_s
        text = f"{text}{piece}".strip()
        end_s = end_s if is_mark and text != bare else ended_s
    if text:
        yield SpokenWord(text, round(start_s, 3), round(end_s, 3))


def _is_opening(text: str) -> bool:
    return all(character in OPENING for character in text)


def _pieces(segment: SpokenSegment, tokenizer: Tokenizer) -> Iterator[tuple[str, float, float]]:
    """Yield texts with their times, of as few tokens as give whole characters."""
    held, start_s = b"", 0.0
    for token_id, began_s, ended_s in zip(segment.token_ids, segment.token_starts, segment.token_ends, strict=True):
        start_s = start_s if held else began_s
        held += tokenizer.token_bytes(token_id)
        try:
            yield held.decode(), start_s, max(start_s, ended_s)
        except UnicodeDecodeError:
            continue
        held = b""
    if held:
        yield held.decode("utf-8", "replace"), start_s, max(start_s, ended_s)
