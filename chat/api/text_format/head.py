"""The facts of a text completion that are known before its first token, and the echo of its prompts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from chat.api.answering.pipeline import Accepted, StartedRun
from chat.api.chat_format.answer import prompt_logprobs_list
from chat.api.request.text_schema import TextRequest
from chat.api.text_format.logprobs import ChoiceLogprobs, ContentLogprobs, TextLogprobs
from engine.api import Admitted, ChoiceFinished, Delta, PromptScored, RawPrompt, Usage


@dataclass(frozen=True, slots=True)
class TextHead:
    """The facts of an answer that are known before its first token."""

    request_id: str
    created: int
    """Unix seconds."""
    model: str
    fingerprint: str
    prompts: tuple[RawPrompt, ...]
    num_choices: int
    """Of each prompt: choice c of prompt p has index p * num_choices + c."""
    echo: bool
    num_top: int | None
    """Alternatives per token; None without log-probabilities."""
    num_prompt_top: int | None
    """The alternatives of `prompt_logprobs`."""
    names_tokens_by_id: bool
    returns_token_ids: bool
    include_usage: bool
    continuous_usage: bool
    stream_interval: int
    service_tier: str | None
    has_chat_logprobs: bool = False
    """Log-probabilities have the shape of chats."""

    def common(self) -> dict[str, Any]:
        """Return the keys that the answer and all chunks begin with."""
        common = {
            "id": f"cmpl-{self.request_id}",
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }
        return common if self.service_tier is None else {**common, "service_tier": self.service_tier}

    def logprobs(self) -> ChoiceLogprobs | None:
        """Return an empty list of log-probabilities for a choice, None if they are not requested."""
        if self.num_top is None:
            return None
        if self.has_chat_logprobs:
            return ContentLogprobs(by_id=self.names_tokens_by_id)
        return TextLogprobs(num_top=self.num_top, by_id=self.names_tokens_by_id)


def text_head(accepted: Accepted[TextRequest], first: StartedRun) -> TextHead:
    """Return the head of the answer. `first` is the run of the first prompt."""
    parsed = accepted.parsed
    generation, response = parsed.generation, parsed.response
    return TextHead(
        request_id=accepted.request_id,
        created=int(accepted.arrived_at),
        model=first.head.model,
        fingerprint=first.head.fingerprint,
        prompts=tuple(parsed.prompts),
        num_choices=generation.num_choices,
        echo=response.echo,
        num_top=generation.logprobs.top if generation.logprobs.enabled else None,
        num_prompt_top=generation.logprobs.prompt,
        names_tokens_by_id=response.names_tokens_by_id,
        returns_token_ids=generation.prompt.returns_ids,
        include_usage=response.include_usage,
        continuous_usage=response.continuous_usage,
        stream_interval=response.stream_interval,
        service_tier=first.head.service_tier,
        has_chat_logprobs=parsed.has_chat_logprobs,
    )


class PromptEcho:
    """The echo of one prompt: its text, log-probabilities and ids, from the events before its first token."""

    def __init__(self, head: TextHead, raw: RawPrompt) -> None:
        self.head = head
        self.raw = raw
        self.admitted: Admitted | None = None
        self.scored: PromptScored | None = None

    def take(self, payload: Admitted | PromptScored) -> None:
        if isinstance(payload, Admitted):
            self.admitted = payload
        else:
            self.scored = payload

    @property
    def text(self) -> str:
        """The text that each choice begins with: as sent, or that of the prompt's tokens if unknown or cut."""
        if not self.head.echo:
            return ""
        spelled = self.admitted.prompt_text if self.admitted is not None else None
        return self.raw.text if spelled is None else spelled

    def add_to(self, logprobs: ChoiceLogprobs) -> None:
        """Begin the log-probabilities of a choice with those of an echoed prompt."""
        admitted = self.admitted
        if self.head.echo and self.scored is not None and admitted is not None and admitted.prompt_tokens is not None:
            logprobs.add_prompt(self.text, admitted.prompt_tokens, admitted.prompt_ids, self.scored)

    def keys(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.head.returns_token_ids and self.admitted is not None:
            fields["prompt_token_ids"] = self.admitted.prompt_ids
        if self.head.num_prompt_top is not None and self.scored is not None:
            fields["prompt_logprobs"] = prompt_logprobs_list(_with_alternatives(self.scored, self.head.num_prompt_top))
        return fields


def _with_alternatives(scored: PromptScored, number: int) -> PromptScored:
    """Return the scores with at most `number` alternatives, -1 for all. The echo may have wanted more."""
    return scored if number < 0 else PromptScored(tuple(entry[: 1 + number] for entry in scored.entries))


def usage_sum(usages: Iterable[Usage]) -> Usage:
    listed = list(usages)
    return Usage(*(sum(getattr(usage, field.name) for usage in listed) for field in fields(Usage)))


def shown_text(payload: Delta | ChoiceFinished) -> str:
    """Return everything that the model has written, as a text has no parts."""
    return payload.reasoning + payload.text
