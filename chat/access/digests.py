"""Digests of keys, which stand in the database for their texts, and key ids.

A digest is the HMAC-SHA-256 of the whole text under a pepper. LIGHTCONE_KEY_PEPPER may hold several peppers, separated
by commas: new secrets use the first, all are accepted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from django.conf import settings

PUBLIC_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def digest(raw: str, pepper: bytes) -> str:
    return hmac.new(pepper, raw.encode(), hashlib.sha256).hexdigest()


def peppers() -> list[bytes]:
    """Return the peppers, that of new secrets first."""
    return [pepper.strip().encode() for pepper in settings.LIGHTCONE_KEY_PEPPER.split(",") if pepper.strip()]


def pepper_version(pepper: bytes) -> str:
    """Return a short name of a pepper, by which rows show the pepper that they need."""
    return hmac.new(pepper, b"lightcone pepper version", hashlib.sha256).hexdigest()[:8]


def public_id_random() -> str:
    """Return a new key id: twelve lowercase letters and digits."""
    return "".join(secrets.choice(PUBLIC_ID_ALPHABET) for _ in range(12))
