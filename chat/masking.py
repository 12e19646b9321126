"""Text of logs, terminals and stored rows: keys, which clients may put anywhere, and secret links are masked.

Standard library only.
"""

from __future__ import annotations

import re

API_KEY = re.compile(r"(lca?)_([A-Za-z0-9]{1,64})_[A-Za-z0-9]{8,}", re.ASCII)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
BEARER = re.compile(r"(?i)\bbearer\s+[^\s'\",]{8,}")
LINK = re.compile(r"/(invitations/|password-reset/[0-9A-Za-z]{1,20}-)[\w-]+", re.ASCII)
"""Links that let in whoever has them."""


def mask_secrets(text: str) -> str:
    """Replace the secret part of API keys, bearer tokens and links. The public id of a key stays."""
    return LINK.sub(r"/\1***", BEARER.sub("Bearer ***", API_KEY.sub(r"\1_\2_***", text)))


def escape_controls(text: str) -> str:
    r"""Replace line breaks, escape codes and other control characters by \n, \x1b, \u2028."""
    return CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
