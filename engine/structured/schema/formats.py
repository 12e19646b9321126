"""Formats of strings: those that llguidance enforces exactly, and expressions for those that it enforces too loosely.

Its dates have a 29th of February in every year, its times a 60th second in every minute, its host names no limit of
length.
"""

from __future__ import annotations

from typing import Any

NATIVE = ("duration", "email", "ipv4", "ipv6", "uri", "uuid")

_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP_YEAR = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DAY = "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
_DATE = f"({_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
_HOUR, _MINUTE = "([01][0-9]|2[0-3])", "[0-5][0-9]"
_TIME = f"{_HOUR}:{_MINUTE}:{_MINUTE}([.][0-9]{{1,9}})?(Z|[+-]{_HOUR}:{_MINUTE})"
_LABEL = "[A-Za-z0-9]+(-[A-Za-z0-9]+)*"
_SHORT = "[^.]{1,63}"

WRITTEN: dict[str, dict[str, Any]] = {
    "date": {"pattern": f"^{_DATE}$"},
    "time": {"pattern": f"^{_TIME}$"},
    "date-time": {"pattern": f"^{_DATE}T{_TIME}$"},
    "hostname": {
        "maxLength": 253,
        "allOf": [{"pattern": f"^{_LABEL}([.]{_LABEL})*$"}, {"pattern": f"^{_SHORT}([.]{_SHORT})*$"}],
    },
}
"""From a name to the schema of strings of that format."""
