"""Redaction of texts before they are stored: keys, e-mail addresses, card and phone numbers, and a project's own rules.

Own rules are regular expressions of people, so each text has a time in which all of them must be done.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import regex

from chat.masking import mask_secrets

MAX_PATTERNS, MAX_PATTERN_CHARS = 20, 300
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


class RedactionTooSlow(Exception):
    """The rules need longer than they have. The text must not be stored."""


class Redaction:
    """The rules of a project. `patterns`: its own regular expressions, which `pattern_problem` has accepted."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._own = [regex.compile(pattern) for pattern in patterns]

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
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"it has {len(pattern)} characters, of at most {MAX_PATTERN_CHARS}"
    try:
        found = regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        return f"it is no regular expression: {error}"
    return "it matches the empty text, so it would match everywhere" if found.fullmatch("") else ""


def _card(found: Any) -> str:
    """Replace a number whose check digit is that of a card."""
    digits = [int(character) for character in found.group() if character.isdigit()]
    doubled = [digit if index % 2 == 0 else sum(divmod(2 * digit, 10)) for index, digit in enumerate(reversed(digits))]
    return "[card]" if sum(doubled) % 10 == 0 else str(found.group())
