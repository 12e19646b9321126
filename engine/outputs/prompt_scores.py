"""Log-probabilities of a prompt, gathered while the core computes it, for the one event that reports them."""

from __future__ import annotations

from engine.api.events import PromptScored, RankedLogprob
from engine.messages import SampledLogprobs
from engine.outputs.detokenizer import Detokenizer
from engine.tokenizer import Tokenizer


class PromptScores:
    """Entries of one prompt, in order. The first token has no prefix, so it has no entry."""

    def __init__(self, prompt_ids: list[int], tokenizer: Tokenizer) -> None:
        self._prompt_ids = prompt_ids
        self._tokenizer = tokenizer
        self._entries: list[SampledLogprobs] = []

    @property
    def is_complete(self) -> bool:
        return len(self._entries) == len(self._prompt_ids) - 1

    def add(self, entries: list[SampledLogprobs]) -> None:
        """Take what the core has computed next."""
        self._entries += entries
        assert len(self._entries) < len(self._prompt_ids)

    def restart(self) -> None:
        """Another core computes the prompt from its beginning."""
        self._entries = []

    def payload(self) -> PromptScored:
        """The event, once all entries are there. Texts are spelled as those of generated tokens are: with the bytes of those before."""
        speller = Detokenizer(self._tokenizer, skip_special_tokens=False)
        speller.feed(self._prompt_ids[0])
        return PromptScored(((), *(_ranked(entry, speller) for entry in self._entries)))


def _ranked(entry: SampledLogprobs, speller: Detokenizer) -> tuple[RankedLogprob, ...]:
    best = tuple(
        RankedLogprob(token_id, logprob, rank, speller.preview(token_id))
        for rank, (token_id, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), 1)
    )
    return (RankedLogprob(entry.token_id, entry.logprob, entry.rank, speller.feed(entry.token_id)), *best)
