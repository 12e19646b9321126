"""Which served names a Scale model name may stand for: `vendor/name/deployment`, of which vendor and deployment are mere labels."""

from __future__ import annotations

MAX_SEGMENTS = 3


def model_candidates(name: str) -> tuple[str, ...]:
    """The names to look for, in order; the whole string always first, and alone where it has more segments or an empty one."""
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
    """A served name as Scale's lists spell it: with a vendor."""
    return name if "/" in name else f"lightcone/{name}"
