"""Sign-in of users, with limits on failures that are counted in Valkey for all web processes.

A try is counted before its password is checked, so that concurrent tries cannot pass a limit together; success takes it
back. Three limits hold in a window: for an account from an address, for an address, and for an account from everywhere.
At an address from which an account has signed in before only the first holds, so failures elsewhere lock nobody out.

While Valkey is away sign-in works without limits, as locking every administrator out would do more harm.
"""

from __future__ import annotations

import hashlib
import logging
import math
from dataclasses import dataclass
from pathlib import Path

import redis
from django.conf import settings
from django.utils.translation import gettext

logger = logging.getLogger(__name__)
WINDOW_S = 15 * 60
CODE_S = 120
KNOWN_S = 90 * 24 * 3600
MAX_LOGGED_CHARS = 64
COUNT = Path(__file__).with_name("sign_in_count.lua").read_text()
SUCCEED = Path(__file__).with_name("sign_in_succeed.lua").read_text()


@dataclass(frozen=True, slots=True)
class SignIn:
    """One try to sign in: an account and the address it comes from.

    Other things that have a password, such as links, are counted here too. Their names begin with a NUL, which no form
    takes, so that nobody spends their tries by signing in under such a name.
    """

    account: str
    address: str

    @property
    def known_mark(self) -> str:
        """The key in Valkey that marks the account as known at the address."""
        return _name("known", self.account, self.address)

    def bounds(self, *, is_known: bool) -> dict[str, int]:
        """Return the limit of each counter; that of account and address comes first."""
        own = {_name("pair", self.account, self.address): int(settings.LIGHTCONE_MAX_LOGIN_FAILURES)}
        if is_known:
            return own
        return own | {
            _name("address", self.address): int(settings.LIGHTCONE_MAX_LOGIN_FAILURES_PER_ADDRESS),
            _name("account", self.account): int(settings.LIGHTCONE_MAX_LOGIN_FAILURES_PER_ACCOUNT),
        }


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """A try that was counted in `counters`, or that has to wait `wait_s` seconds."""

    wait_s: int = 0
    counters: tuple[str, ...] = ()


def sign_in_begin(*, tried: SignIn) -> SignInAttempt:
    """Count a try before its password is checked, unless there were too many failures."""
    try:
        with _client() as client:
            bounds = tried.bounds(is_known=bool(client.exists(tried.known_mark)))
            wait_s = int(client.eval(COUNT, len(bounds), *bounds, WINDOW_S, *bounds.values()))
    except redis.RedisError as error:
        logger.warning("sign-in failures cannot be counted: %s", error)
        return SignInAttempt()
    if wait_s:
        _log(logging.WARNING, tried, "refused after too many failures")
        return SignInAttempt(wait_s)
    return SignInAttempt(counters=tuple(bounds))


def sign_in_succeed(*, tried: SignIn, begun: SignInAttempt) -> None:
    """Take back what a successful try counted, and mark its account as known at the address."""
    _log(logging.INFO, tried, "succeeded")
    if not begun.counters:
        return
    try:
        with _client() as client:
            client.eval(SUCCEED, 1 + len(begun.counters), tried.known_mark, *begun.counters, KNOWN_S)
    except redis.RedisError as error:
        logger.warning("sign-in failures cannot be counted: %s", error)


def sign_in_fail(*, tried: SignIn) -> None:
    """Log a try with a wrong password. It stays counted."""
    _log(logging.WARNING, tried, "failed")


def minutes_to_wait(wait_s: int) -> int:
    return math.ceil(wait_s / 60)


def too_many_failures(wait_s: int) -> str:
    """Return the sentence for whoever has to wait."""
    minutes = minutes_to_wait(wait_s)
    if minutes > 1:
        return str(gettext("Too many failed sign-ins. Try again in %(minutes)s minutes.") % {"minutes": minutes})
    return str(gettext("Too many failed sign-ins. Try again in a minute."))


def code_is_fresh(*, account_id: int, code: str) -> bool:
    """Note the use of a code, and return False if the account has used it within the time that codes hold.

    Blanks and punctuation are no part of a code.
    """
    normalised = "".join(char for char in code if char.isascii() and char.isalnum())
    try:
        with _client() as client:
            return bool(client.set(_name("code", str(account_id), normalised), 1, nx=True, ex=CODE_S))
    except redis.RedisError as error:
        logger.warning("used codes cannot be noted: %s", error)
        return True


def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.LIGHTCONE_REDIS_URL, socket_timeout=1, socket_connect_timeout=1)


def _name(kind: str, *parts: str) -> str:
    digest = hashlib.sha256("\0".join(part.lower() for part in parts).encode()).hexdigest()[:32]
    return f"{settings.LIGHTCONE_DEPLOYMENT}:sign-in:{kind}:{digest}"


def _log(level: int, tried: SignIn, outcome: str) -> None:
    """Log one line. The typed name is cut and written as a literal, so that it cannot leave its quotes."""
    logger.log(
        level,
        "sign-in %s: account %a, address %s",
        outcome,
        tried.account.removeprefix("\0")[:MAX_LOGGED_CHARS],
        tried.address[:MAX_LOGGED_CHARS] or "-",
    )
