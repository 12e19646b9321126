"""Whether a regular expression matches white space alone. Read by hand, as it must hold in every dialect of regular expressions."""

from __future__ import annotations

import re

from chat.api.request.fields import refuse

BLANK = r"(?:[ \t\n\r]|\\[tnr]|\\x(?:20|09|0[aAdD]))"
TOKENS = re.compile(
    rf"(?P<blank>{BLANK})|(?P<class>\[{BLANK}+\])|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)"
    r"|(?P<repeat>[*+?]|\{[0-9]{1,5}(?:,[0-9]{0,5})?\})"
)
HELP = r"must match only spaces, tabs, CR and LF, written with ' ', \t, \r, \n, [ ], ( ), |, *, +, ? and {m,n}"


def whitespace_check(pattern: str) -> None:
    """Raise ValidationError unless `pattern` is a regular expression that no other character can match."""
    depth, position = 0, 0
    can_repeat = False
    while position < len(pattern):
        match = TOKENS.match(pattern, position)
        kind = match.lastgroup if match else None
        if match is None or (kind == "repeat" and not can_repeat) or (kind == "close" and depth == 0):
            raise refuse("invalid_value", f"{HELP}; it goes wrong at character {position}")
        if kind == "repeat":
            _check_repeat(match.group())
        depth += {"open": 1, "close": -1}.get(kind or "", 0)
        can_repeat = kind in ("blank", "class", "close")
        position = match.end()
    if depth:
        raise refuse("invalid_value", "has a parenthesis that is not closed")


def _check_repeat(text: str) -> None:
    low, comma, high = text.strip("{}").partition(",")
    if comma and high and int(high) < int(low):
        raise refuse("invalid_value", f"repeats {text}, from more to less")
