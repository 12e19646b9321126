"""Keep API keys out of log lines and stored rows: a client may put one into a user agent, a label or a model name."""

from __future__ import annotations

import re

API_KEY = re.compile(r"lc_([A-Za-z0-9]{1,64})_[A-Za-z0-9]{8,}", re.ASCII)
BEARER = re.compile(r"(?i)\bbearer\s+[^\s'\",]{8,}")


def mask_secrets(text: str) -> str:
    """Replace the secret part of API keys and bearer tokens. The public id of a key stays."""
    return BEARER.sub("Bearer ***", API_KEY.sub(r"lc_\1_***", text))
