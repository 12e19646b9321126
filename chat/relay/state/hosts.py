"""What worker hosts report of themselves: their machine, memory, version and last log lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HOST_LIFE_MS = 60_000
"""How long a report lives. A host without one is on the list until another host removes it, or itself as it stops."""
HAS_LEFT = "has_left"
"""The field that says, for LEFT_MS, that a host has stopped. A report clears it."""
LEFT_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class HostReport:
    """A worker host, as it said last."""

    node: str
    """The name of its Celery worker. Ids of its models' leases begin with it and a `~`."""
    machine: str = ""
    pid: int = 0
    version: str = ""
    device: str = ""
    """cpu or cuda"""
    device_name: str = ""
    device_bytes: int = 0
    """Of the device's memory, or the machine's; 0 if not known, like all that follow."""
    device_used_bytes: int = 0
    budget_bytes: int = 0
    """What models may take together; 0: no limit is known."""
    held_bytes: int = 0
    """What the models with a core count for."""
    process_bytes: int = 0
    """Of the host process itself, without its cores."""
    utilization: int = -1
    """Of a GPU in percent, like the next two in degrees and watts; -1 where the system does not say."""
    temperature: int = -1
    power_watts: int = -1
    is_draining: bool = False
    """It takes no new requests because somebody said so."""
    started_at: float = 0.0
    beat_at: float = 0.0
    lines: tuple[str, ...] = ()
    """The last log lines of the process, the newest last."""
    model_lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those about loading and unloading each model."""


_TEXTS = ("machine", "version", "device", "device_name")
_NUMBERS = (
    *("pid", "device_bytes", "device_used_bytes", "budget_bytes", "held_bytes", "process_bytes"),
    *("utilization", "temperature", "power_watts"),
)


def host_fields(report: HostReport) -> dict[str, Any]:
    """Return the fields of a report's hash."""
    return {
        **{name: getattr(report, name) for name in (*_TEXTS, *_NUMBERS)},
        "is_draining": int(report.is_draining),
        "started_at": report.started_at,
        "beat_at": report.beat_at,
        HAS_LEFT: 0,
        "lines": json.dumps(report.lines),
        "model_lines": json.dumps({name: list(lines) for name, lines in report.model_lines.items()}),
    }


def host_read(node: str, raw: Mapping[bytes, bytes]) -> HostReport:
    """Return a report from the fields of its hash."""
    fields = {name.decode(): value.decode() for name, value in raw.items()}
    known: dict[str, Any] = {name: fields.get(name, "") for name in _TEXTS}
    known |= {name: int(fields.get(name, 0)) for name in _NUMBERS}
    known |= {name: float(fields.get(name, 0)) for name in ("started_at", "beat_at")}
    return HostReport(
        node=node,
        is_draining=fields.get("is_draining") == "1",
        lines=tuple(json.loads(fields.get("lines", "[]"))),
        model_lines={name: tuple(lines) for name, lines in json.loads(fields.get("model_lines", "{}")).items()},
        **known,
    )
