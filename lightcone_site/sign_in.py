"""The operator's settings of sign-in by an OpenID provider, and of mail. Both are off until their first one is set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from lightcone_site import env

GIVEN_ROLES = ("", "member", "viewer", "billing")
"""Roles that a person whom nobody has invited may get. Those that change anything of others are given by people."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    issuer: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    name: str = ""
    role: str = ""
    """The role of people whom the provider knows and nobody has invited; empty: they are refused."""
    provider_id: str = "provider"
    """The last part of its address here, /sign-in/oidc/<it>/…"""

    def apps(self) -> list[dict[str, Any]]:
        """Return django-allauth's description of the provider: none, or one."""
        if not self.issuer:
            return []
        return [
            {
                "provider_id": self.provider_id,
                "name": self.name,
                "client_id": self.client_id,
                "secret": self.client_secret,
                "settings": {"server_url": self.issuer, "oauth_pkce_enabled": True},
            }
        ]


@dataclass(frozen=True, slots=True)
class MailSettings:
    host: str = ""
    port: int = 587
    security: str = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)
    sender: str = ""

    @property
    def is_set_up(self) -> bool:
        return bool(self.host)


def oidc_settings() -> OidcSettings:
    """Read LIGHTCONE_OIDC_…. Raises ImproperlyConfigured."""
    read = OidcSettings(
        issuer=env.text("OIDC_ISSUER"),
        client_id=env.text("OIDC_CLIENT_ID"),
        client_secret=env.text("OIDC_CLIENT_SECRET"),
        name=env.text("OIDC_NAME", "Single sign-on"),
        role=env.choice("OIDC_ROLE", "", GIVEN_ROLES),
    )
    if not read.issuer:
        return read
    parts = urlsplit(read.issuer)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ImproperlyConfigured(
            f"LIGHTCONE_OIDC_ISSUER must be an address like https://login.example.com/realm, got {read.issuer!r}"
        )
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ImproperlyConfigured(
            "LIGHTCONE_OIDC_ISSUER must begin with https://: over http anybody on the way signs in as anybody"
        )
    if not read.client_id or not read.client_secret:
        raise ImproperlyConfigured(
            "LIGHTCONE_OIDC_ISSUER needs LIGHTCONE_OIDC_CLIENT_ID and LIGHTCONE_OIDC_CLIENT_SECRET from the provider"
        )
    return read


def mail_settings() -> MailSettings:
    """Read LIGHTCONE_SMTP_…. Raises ImproperlyConfigured."""
    security = env.choice("SMTP_SECURITY", "starttls", ("starttls", "tls", "none"))
    read = MailSettings(
        host=env.text("SMTP_HOST"),
        security=security,
        port=env.integer("SMTP_PORT", {"starttls": 587, "tls": 465, "none": 25}[security], minimum=1, maximum=65535),
        user=env.text("SMTP_USER"),
        password=env.text("SMTP_PASSWORD"),
        sender=env.text("SMTP_FROM"),
    )
    if read.host and "@" not in read.sender:
        raise ImproperlyConfigured(
            f"LIGHTCONE_SMTP_HOST needs LIGHTCONE_SMTP_FROM, an address like lightcone@example.com, got {read.sender!r}"
        )
    return read
