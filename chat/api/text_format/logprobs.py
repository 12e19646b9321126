"""Write the log-probabilities of a text completion: four parallel lists, or the shape of chats.

With `by_id` `token_id:N` replaces the text of a token. Offsets still count characters of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chat.api.chat_format.answer import finite_logprob, logprob_object
from engine.api import PromptScored, RankedLogprob, TokenLogprob, TopLogprob


class TextLogprobs:
    """The log-probabilities of one choice. `take` returns those added since; offsets continue.

    `num_top` is the number of alternatives per token of the prompt, -1 for all.
    """

    def __init__(self, *, num_top: int, by_id: bool) -> None:
        self._num_top = num_top
        self._by_id = by_id
        self._end = 0
        self._clear()

    def add_prompt(
        self, text: str, tokens: Sequence[str], token_ids: Sequence[int] | None, scored: PromptScored
    ) -> None:
        """Add the tokens of an echoed prompt. `text`, the echo, may lack what the tokenizer has put before it."""
        spelled = "".join(tokens)
        num_hidden = len(spelled) - len(text) if spelled.endswith(text) else 0
        at = -num_hidden
        for index, (token, entry) in enumerate(zip(tokens, scored.entries, strict=True)):
            token_id = entry[0].token_id if entry else token_ids[index] if token_ids else None
            self._add(
                max(0, at), self._name(token, token_id), entry[0].logprob if entry else None, self._alternatives(entry)
            )
            at += len(token)
        self._end = len(text)

    def add(self, entries: Iterable[TokenLogprob]) -> None:
        for entry in entries:
            self._add(
                self._end, self._name(entry.token, entry.token_id), entry.logprob, self._best((entry, *entry.top))
            )
            self._end += len(entry.token)

    def take(self) -> dict[str, Any]:
        lists = {
            "tokens": self._tokens,
            "token_logprobs": self._logprobs,
            "top_logprobs": self._top,
            "text_offset": self._offsets,
        }
        self._clear()
        return lists

    def _clear(self) -> None:
        self._tokens: list[str] = []
        self._logprobs: list[float | None] = []
        self._top: list[dict[str, float] | None] = []
        self._offsets: list[int] = []

    def _add(self, offset: int, name: str, logprob: float | None, best: dict[str, float] | None) -> None:
        self._offsets.append(offset)
        self._tokens.append(name)
        self._logprobs.append(None if logprob is None else finite_logprob(logprob))
        self._top.append(best)

    def _alternatives(self, entry: Sequence[RankedLogprob]) -> dict[str, float] | None:
        if not entry:
            return None
        return self._best(entry if self._num_top < 0 else entry[: 1 + self._num_top])

    def _best(self, tokens: Iterable[TokenLogprob | TopLogprob | RankedLogprob]) -> dict[str, float]:
        """Return the token and its alternatives by name.

        Of two with one name, as within a character, the likelier counts.
        """
        best: dict[str, float] = {}
        for token in tokens:
            name, logprob = self._name(token.token, token.token_id), finite_logprob(token.logprob)
            best[name] = max(logprob, best.get(name, logprob))
        return best

    def _name(self, token: str, token_id: int | None) -> str:
        return f"token_id:{token_id}" if self._by_id and token_id is not None else token


class ContentLogprobs:
    """The log-probabilities of one choice in the shape of chats, which covers generated tokens alone."""

    def __init__(self, *, by_id: bool) -> None:
        self._by_id = by_id
        self._content: list[dict[str, Any]] = []

    def add_prompt(
        self, text: str, tokens: Sequence[str], token_ids: Sequence[int] | None, scored: PromptScored
    ) -> None:
        """Do nothing: this shape has no place for the prompt."""

    def add(self, entries: Iterable[TokenLogprob]) -> None:
        self._content += [logprob_object(entry, by_id=self._by_id) for entry in entries]

    def take(self) -> dict[str, Any]:
        content, self._content = self._content, []
        return {"content": content, "refusal": None}


ChoiceLogprobs = TextLogprobs | ContentLogprobs
