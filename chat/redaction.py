"""Redaction of texts before they are stored: keys, e-mail addresses, card and phone numbers, and a project's own rules.

Own rules are regular expressions of people, so each text has a time in which all of them must be done. The time bounds
neither the compilation of a rule nor the memory of one that calls itself, so `pattern_problem` refuses these unread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import regex

from chat.masking import mask_secrets

MAX_PATTERNS, MAX_PATTERN_CHARS, MAX_REPEATS = 20, 300, 10_000
EMPTY_PARTS = 10
"""What an empty group counts: the library takes the square of their number to compile them."""
TIMEOUT_S = 0.5
OWN = "[redacted]"
KEYS = regex.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abprs]|hf|AKIA|ASIA|AIza)[-_]?[A-Za-z0-9][A-Za-z0-9_-]{14,200}"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{1,10000}-----END [A-Z ]{0,40}PRIVATE KEY-----"
)
EMAIL = regex.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
CARD = regex.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?!\d|\.\d)")
PHONE = regex.compile(
    r"(?<![\w.])(?:\+|00)\d{1,3}[ ./-]?(?:\(\d{1,5}\)[ ./-]?)?\d(?:[ ./-]?\d){5,12}(?![\w])"
    r"|(?<![\w.])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w])"
)
ESCAPED = regex.compile(r"\\.")
CALL = regex.compile(r"\(\?(?:R|[+-]?\d|&|P>)")
"""The begin of a call of a group, or of the whole pattern."""
NEW_SETS = regex.compile(r"\(\?[A-Za-z\d]*V1")
"""The begin of a flag by which sets may stand in sets."""
TOKEN = regex.compile(r"\[\^?\]?(?:\[:[^\]]*\]|[^\]])*\]|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\}|\((?:\?:)?|.")
"""A set of characters, a counted repeat, the begin of a group, or a character."""


class RedactionTooSlow(Exception):
    """The rules need longer than they have. The text must not be stored."""


class PatternUnusable(ValueError):
    """A rule is none that `pattern_problem` accepts."""


class Redaction:
    """The rules of a project. `patterns`: its own regular expressions. Raises PatternUnusable."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._own = [_compiled(pattern) for pattern in patterns]

    def apply(self, value: Any, *, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the value with every text in it redacted. Raises RedactionTooSlow after `timeout_s` for all."""
        until = time.monotonic() + timeout_s
        return self._applied(value, until)

    def _applied(self, value: Any, until: float) -> Any:
        if isinstance(value, dict):
            return {self._text(str(name), until): self._applied(item, until) for name, item in value.items()}
        if isinstance(value, list):
            return [self._applied(item, until) for item in value]
        return self._text(value, until) if isinstance(value, str) else value

    def _text(self, text: str, until: float) -> str:
        text = mask_secrets(text)
        rules: Iterable[tuple[Any, Any]] = (
            (KEYS, "[key]"),
            (EMAIL, "[e-mail]"),
            (CARD, _card),
            (PHONE, "[phone]"),
            *((pattern, lambda found: OWN if found.group() else "") for pattern in self._own),
        )
        for pattern, instead in rules:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise RedactionTooSlow
            try:
                # NOTE: concurrent lets other threads work meanwhile.
                text = pattern.sub(instead, text, timeout=left_s, concurrent=True)
            except TimeoutError:
                raise RedactionTooSlow from None
        return text


def pattern_problem(pattern: str) -> str:
    """Return why a text is no usable rule, or an empty text."""
    try:
        found = _compiled(pattern)
    except PatternUnusable as error:
        return str(error)
    return "it matches the empty text, so it would match everywhere" if found.fullmatch("", timeout=TIMEOUT_S) else ""


def _compiled(pattern: str) -> Any:
    if problem := _cost_problem(pattern):
        raise PatternUnusable(problem)
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError, ValueError, TypeError) as error:
        raise PatternUnusable(f"it is no regular expression: {error}") from error


def _cost_problem(pattern: str) -> str:
    """Return why a pattern may cost more than it should, or an empty text. It is read without being compiled.

    What is read wrongly must be refused, not let through: hence no line breaks, which end comments, and no sets in
    sets. The rest is read twice, as blanks may count or not.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"it has {len(pattern)} characters, of at most {MAX_PATTERN_CHARS}"
    if "\n" in pattern:
        return "it has a line break; write \\n for one"
    plain = ESCAPED.sub("_", pattern)
    for text in (plain, "".join(plain.split())):
        if CALL.search(text):
            return "it calls a group or itself, as by (?R) or (?1); write the part out"
        if NEW_SETS.search(text):
            return "it has the flag V1; write it without"
        if (number := _num_repeats(text)) > MAX_REPEATS:
            return f"its repeats come to {number} parts, of at most {MAX_REPEATS}; repeat less, or use * or +"
    return ""


def _num_repeats(text: str) -> int:
    """Return how many parts a pattern without escapes has, once counted repeats are written out."""
    groups, last = [0], 0
    for token in TOKEN.finditer(text):
        found = token.group()
        if found.startswith("("):
            groups.append(0)
            last = 0
        elif found == ")" and len(groups) > 1:
            last = groups.pop() or EMPTY_PARTS
            groups[-1] += last
        elif token["comma"] is not None and (token["least"] or token["most"]):
            times = max(1, int(token["least"] or 0), int(token["most"] or 0))
            groups[-1] += last * (times - 1)
            last *= times
        elif found not in "|)?*+":
            last = 1
            groups[-1] += 1
    return sum(groups)


def _card(found: Any) -> str:
    """Replace a number whose check digit is that of a card."""
    digits = [int(character) for character in found.group() if character.isdigit()]
    doubled = [digit if index % 2 == 0 else sum(divmod(2 * digit, 10)) for index, digit in enumerate(reversed(digits))]
    return "[card]" if sum(doubled) % 10 == 0 else str(found.group())
