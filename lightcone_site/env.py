"""Read environment variables with types. A value that cannot be used stops the start, with its name and the remedy."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from django.core.exceptions import ImproperlyConfigured

PREFIX = "LIGHTCONE_"
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+")
HOST = re.compile(r"([a-z0-9]([a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:]+\])(:[1-9][0-9]{0,4})?")
READ: dict[str, tuple[object, bool]] = {}
"""Value of each setting that was read, and whether the environment sets it; docs/operations.md must list them (a test
compares)."""
READ_ELSEWHERE = ("LIGHTCONE_API_KEY", "LIGHTCONE_ADMIN_PASSWORD")
"""Secrets of the first start; only the supervisor reads them (lightcone_site.serve.serving)."""
DEVELOPMENT_PREFIXES = ("TEST_", "SOAK_", "BENCH_")
"""Variables of tests and benchmarks, which are no settings."""
MAX_UNKNOWN = 5
RENAMED = {
    "MAX_NUM_SEQS": "MAX_SEQUENCES",
    "MAX_NUM_BATCHED_TOKENS": "STEP_TOKENS",
    "PLAYGROUND_DETACH_GRACE": "PLAYGROUND_LINGER",
}
"""Settings and their old names, which work until the next release."""


P = ParamSpec("P")
T = TypeVar("T")


def _kept(read: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    """Keep what a reader returns in `READ`. Readers build on each other; the outermost is the one that counts."""

    @wraps(read)
    def reading(name: str, /, *args: P.args, **options: P.kwargs) -> T:
        value = read(name, *args, **options)
        READ[PREFIX + name] = (value, bool(_raw(name)))
        return value

    return reading


def _raw(name: str) -> str:
    """Return what the environment says of a setting, also by its old name."""
    old_name = RENAMED.get(name)
    names = (PREFIX + name, *([PREFIX + old_name] if old_name else []))
    return next((value for other in names if (value := os.environ.get(other, "").strip())), "")


@_kept
def text(name: str, default: str = "") -> str:
    """Return the value of LIGHTCONE_<name>, stripped, or the default if it is unset or empty. An old name works too."""
    value = os.environ.get(PREFIX + name, "").strip()
    old_name = RENAMED.get(name)
    old_value = os.environ.get(f"{PREFIX}{old_name}", "").strip() if old_name else ""
    if value and old_value and value != old_value:
        raise ImproperlyConfigured(
            f"{PREFIX}{name} is {value!r} and its old name {PREFIX}{old_name} is {old_value!r}; remove the old one"
        )
    return value or old_value or default


@_kept
def folder(name: str, default: Path) -> Path:
    """Return the path of a writable folder, and make it if it is missing."""
    path = Path(text(name, str(default))).expanduser().absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = path.resolve()
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror or error
        raise ImproperlyConfigured(
            f"{PREFIX}{name} must be a folder that this user can write to; {path} cannot be used: {why}"
        ) from None
    return path


@_kept
def integer(name: str, default: int, *, minimum: int = 0, maximum: int = 2**62) -> int:
    raw = text(name)
    if not raw:
        return default
    try:
        value = int(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{PREFIX}{name} must be a whole number, got {raw!r}") from None
    if not minimum <= value <= maximum:
        raise ImproperlyConfigured(f"{PREFIX}{name} must be between {minimum} and {maximum}, got {value}")
    return value


@_kept
def decimal(name: str, default: str, *, maximum: int) -> Decimal:
    """Return an exact number from 0 to `maximum`."""
    raw = text(name, default)
    try:
        value = Decimal(raw)
    except InvalidOperation:
        raise ImproperlyConfigured(f"{PREFIX}{name} must be a number, got {raw!r}") from None
    if not (value.is_finite() and 0 <= value <= maximum):
        raise ImproperlyConfigured(f"{PREFIX}{name} must be between 0 and {maximum}, got {raw!r}")
    return value


@_kept
def boolean(name: str, default: bool = False) -> bool:
    raw = text(name).lower()
    if not raw:
        return default
    if raw in {"1", "true", "yes", "on"}:
        return True
    if raw in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{PREFIX}{name} must be 1 or 0, got {raw!r}")


@_kept
def items(name: str, default: tuple[str, ...] = ()) -> list[str]:
    """Return a comma-separated list."""
    raw = text(name)
    return [item.strip() for item in raw.split(",") if item.strip()] if raw else list(default)


@_kept
def networks(name: str) -> list[str]:
    listed = items(name)
    for item in listed:
        try:
            ipaddress.ip_network(item, strict=False)
        except ValueError:
            raise ImproperlyConfigured(
                f"{PREFIX}{name} must list addresses or networks like 10.0.0.0/8, got {item!r}"
            ) from None
    return listed


@_kept
def hosts(name: str) -> list[str]:
    """Return hosts as URLs have them, each with a port or without, or `*` for all."""
    listed = [item.lower() for item in items(name)]
    for item in listed:
        if item != "*" and not HOST.fullmatch(item):
            raise ImproperlyConfigured(
                f"{PREFIX}{name} must list hosts like files.example.com or files.example.com:8443, or * for all, "
                f"got {item!r}"
            )
    return listed


@_kept
def origins(name: str, default: tuple[str, ...] = ()) -> list[str]:
    """Return a list of origins as browsers send them (`null`: pages of files), or `*`."""
    listed = items(name, default)
    for item in listed:
        if item not in ("*", "null") and not ORIGIN.fullmatch(item):
            raise ImproperlyConfigured(
                f"{PREFIX}{name} must list origins like https://ai.example.com, in small letters, or *, got {item!r}"
            )
    return listed


@_kept
def file_name(name: str) -> str:
    """Return the name of a file, without its folder; "" if it is unset."""
    value = text(name)
    if value != Path(value).name:
        raise ImproperlyConfigured(f"{PREFIX}{name} must be the name of a file, without its folder, got {value!r}")
    return value


@_kept
def choice(name: str, default: str, options: tuple[str, ...]) -> str:
    value = text(name, default)
    if value not in options:
        raise ImproperlyConfigured(f"{PREFIX}{name} must be one of {', '.join(options)}, got {value!r}")
    return value


def settings_remarks(names: Iterable[str]) -> str:
    """Return remarks on unknown variables and old names of settings. Call it after all settings are read."""
    known = {*READ, *READ_ELSEWHERE}
    given = sorted(
        name
        for name in names
        if name.startswith(PREFIX) and not name.removeprefix(PREFIX).startswith(DEVELOPMENT_PREFIXES)
    )
    new_names = {PREFIX + old_name: PREFIX + name for name, old_name in RENAMED.items()}
    renamed = [
        f"{name} is now called {new_names[name]}; the old name works until the next release"
        for name in given
        if name in new_names
    ]
    unknown = [name for name in given if name not in known and name not in new_names]
    listed = [_unknown(name, known) for name in unknown[:MAX_UNKNOWN]]
    if len(unknown) > MAX_UNKNOWN:
        listed.append(f"{len(unknown) - MAX_UNKNOWN} more")
    ignored = [f"no setting, and ignored: {', '.join(listed)}; docs/operations.md lists all settings"] if listed else []
    return "; ".join((*renamed, *ignored))


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known], n=1)
    return f"{name} (did you mean {PREFIX}{near[0]}?)" if near else name
