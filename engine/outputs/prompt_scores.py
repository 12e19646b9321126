"""Collects the log-probabilities of a prompt while the core computes it, for the single event that reports them."""

from __future__ import annotations

from engine.api.events import PromptScored, RankedLogprob
from engine.messages import SampledLogprobs
from engine.outputs.detokenizer import Detokenizer
from engine.tokenizers.tokenizer import Tokenizer


class PromptScores:
    """The entries of one prompt, in order. The first token has no prefix, so its entry is empty.

    Each text is decoded with the bytes of the tokens before it, as for generated tokens.
    """

    def __init__(self, prompt_ids: list[int], tokenizer: Tokenizer) -> None:
        self._prompt_ids = prompt_ids
        self._tokenizer = tokenizer
        self.restart()

    @property
    def is_complete(self) -> bool:
        return len(self._entries) == len(self._prompt_ids)

    def restart(self) -> None:
        """Drop all entries: a new core computes the prompt from its beginning."""
        self._speller = Detokenizer(self._tokenizer, skip_special_tokens=False)
        self._speller.feed(self._prompt_ids[0])
        self._entries: list[tuple[RankedLogprob, ...]] = [()]

    def add(self, entries: list[SampledLogprobs]) -> None:
        """Append the entries that the core has computed next."""
        self._entries += [_ranked(entry, self._speller) for entry in entries]
        assert len(self._entries) <= len(self._prompt_ids)

    def payload(self) -> PromptScored:
        """Return the event. Call it once `is_complete`."""
        return PromptScored(tuple(self._entries))


def _ranked(entry: SampledLogprobs, speller: Detokenizer) -> tuple[RankedLogprob, ...]:
    best = tuple(
        RankedLogprob(token_id, logprob, rank, speller.preview(token_id))
        for rank, (token_id, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), 1)
    )
    return (RankedLogprob(entry.token_id, entry.logprob, entry.rank, speller.feed(entry.token_id)), *best)
