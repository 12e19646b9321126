"""What the fields of a translated request were called when they were sent, so that refusals name those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chat.api.request.constraints import CONSTRAINT_KEYS

EXTRA = "inference_extra_params"


@dataclass(frozen=True, slots=True)
class SentNames:
    """`extra`: fields that came in `inference_extra_params`. `guided`: parts of `structured_outputs`, and the field that each came in.

    `renamed`: top-level names of ours, and those that were sent instead. `places`: of each message, its place in the list that was sent.
    `single_parts`: places of messages whose content was one part.
    """

    extra: frozenset[str] = frozenset()
    guided: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    places: tuple[int, ...] = ()
    single_parts: frozenset[int] = frozenset()

    def sent(self, path: str) -> str:
        """The dotted path, or any other word, as the client knows it."""
        name, *steps = path.split(".")
        if name == "messages":
            return ".".join((name, *self._message(steps)))
        if name == "structured_outputs":
            constraints = [part for part in self.guided if part in CONSTRAINT_KEYS]
            part = (steps or constraints or [""])[0]
            if part in self.guided:
                return ".".join((self.guided[part], *steps[1:]))
        if name in self.renamed:
            return ".".join((self.renamed[name], *steps))
        return f"{EXTRA}.{path}" if name in self.extra else path

    def _message(self, steps: list[str]) -> list[str]:
        if not (steps and steps[0].isdecimal() and int(steps[0]) < len(self.places)):
            return steps
        place, inner = self.places[int(steps[0])], steps[1:]
        if place in self.single_parts and inner[:2] == ["content", "0"]:
            inner = ["content", *inner[2:]]
        return [str(place), *inner]
