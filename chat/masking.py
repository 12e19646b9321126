"""Text of logs, terminals and stored rows: keys, which clients may put anywhere, are masked. Standard library only."""

from __future__ import annotations

import re

API_KEY = re.compile(r"lc_([A-Za-z0-9]{1,64})_[A-Za-z0-9]{8,}", re.ASCII)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
BEARER = re.compile(r"(?i)\bbearer\s+[^\s'\",]{8,}")


def mask_secrets(text: str) -> str:
    """Replace the secret part of API keys and bearer tokens. The public id of a key stays."""
    return BEARER.sub("Bearer ***", API_KEY.sub(r"lc_\1_***", text))


def escape_controls(text: str) -> str:
    r"""Replace line breaks, escape codes and other control characters by \n, \x1b, \u2028."""
    return CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
