"""What a worker hands over with a run that an earlier attempt has begun."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api import Admitted, Delta, Event, Usage


@dataclass(frozen=True, slots=True)
class Resume:
    """The logged events of an earlier attempt at a run, complete and in order."""

    events: tuple[Event, ...]
    next_position: int | None = None
    """The position of the next event; None: right after the last one."""

    @property
    def position(self) -> int:
        if self.next_position is not None:
            return self.next_position
        return self.events[-1].start + self.events[-1].count if self.events else 0

    @property
    def admitted(self) -> Admitted | None:
        return next((event.payload for event in self.events if isinstance(event.payload, Admitted)), None)

    @property
    def usage(self) -> Usage:
        """The counts that the logged events account for."""
        num_prompt_tokens = self.admitted.num_prompt_tokens if self.admitted else 0
        return Usage(
            num_prompt_tokens,
            0,
            sum(len(event.payload.token_ids) for event in self.events if isinstance(event.payload, Delta)),
        )
