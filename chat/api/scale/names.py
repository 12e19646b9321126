"""Names in a Scale request: of fields, for errors of all later steps, and of models, `vendor/name/deployment`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chat.api.request.constraints import CONSTRAINT_KEYS
from chat.errors import FieldNames, names_unchanged

EXTRA = "inference_extra_params"
MAX_SEGMENTS = 3


@dataclass(frozen=True, slots=True)
class ScaleNames:
    """The names that a Scale request used. Call it with the path of a field in the one request schema."""

    extra: frozenset[str] = frozenset()
    """Fields that came in `inference_extra_params`."""
    guided: Mapping[str, str] = field(default_factory=dict)
    """From a part of `structured_outputs` to the field that it came in."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """From a field of the schema to the field that was sent instead."""
    places: tuple[int, ...] = ()
    """Of each message, its place in the list that was sent."""
    single_parts: frozenset[int] = frozenset()
    """The places of messages whose content was one part."""
    inner: FieldNames = names_unchanged
    """The names of the request that this one was translated into."""

    def __call__(self, path: str) -> str:
        path = self.inner(path)
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


def model_candidates(name: str) -> tuple[str, ...]:
    """Return the served names that a model name may stand for, in order. Vendor and deployment are mere labels.

    The whole string comes first, and alone with more than three segments or an empty one.
    """
    segments = name.split("/")
    if len(segments) > MAX_SEGMENTS or "" in segments:
        return (name,)
    if len(segments) == 1:
        return (name,)
    vendor, model, *deployment = segments
    if not deployment:
        return (name, model)
    return (name, f"{model}/{deployment[0]}", f"{vendor}/{model}", model)


def model_vendor_name(name: str) -> str:
    """Return a served name as Scale's lists spell it: with a vendor."""
    return name if "/" in name else f"lightcone/{name}"
