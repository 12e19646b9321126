"""Secrets of webhooks: drawn here, shown once, and stored encrypted, as signing needs them again."""

from __future__ import annotations

import base64
import hashlib
import secrets

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

PREFIX = "whsec_"
SECRET_BYTES = 32


class SecretLost(Exception):
    """The error for a secret that cannot be decrypted, because LIGHTCONE_SECRET_KEY has changed."""


def secret_create() -> str:
    """Return a new secret in the notation of Standard Webhooks."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def secret_bytes(secret: str) -> bytes:
    """Return the key of a secret."""
    return base64.b64decode(secret.removeprefix(PREFIX))


def secret_seal(secret: str) -> str:
    return _cipher().encrypt(secret.encode()).decode()


def secret_unseal(sealed: str) -> str:
    """Return a stored secret. Raises SecretLost."""
    try:
        return _cipher().decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise SecretLost from None


def _cipher() -> Fernet:
    digest = hashlib.sha256(b"webhooks" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(digest))
