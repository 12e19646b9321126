"""The checks of `manage.py doctor`, which change nothing.

Another process opens device and model, as they need torch.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import redis
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from chat.access.keys import KeyRefused, key_public_id
from chat.catalog.model_choice import NoModel
from chat.engine_check import ENGINE_CHECK_S, engine_check
from engine.spill_folder import is_in_memory, room_bytes
from lightcone_site.databases import embedded_valkey_socket
from lightcone_site.private_files import data_open
from lightcone_site.serve.embedded_valkey import is_answering
from lightcone_site.serve.lock import AlreadyServed, InstanceLock, port_problem
from lightcone_site.serve.preparation import database_label, eviction_policy, served_model_choice

PINNED = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([^;\s]+)(?:\s*;\s*platform_system\s*==\s*\"(\w+)\")?")
GIB = 2**30
MIN_DISK_BYTES = GIB
"""The first check after an installation compiles kernels: 40 s on an idle machine, minutes on a busy one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `remedy` is set if something is wrong."""

    area: str
    text: str
    remedy: str = ""

    @property
    def is_problem(self) -> bool:
        return bool(self.remedy)


def check_python() -> Iterator[Finding]:
    text = f"{platform.python_version()} ({sys.executable})"
    is_known = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Finding("python", text, "" if is_known else "use Python 3.11, 3.12 or 3.13: make serve PYTHON=python3.12")


def check_packages() -> Iterator[Finding]:
    wrong = []
    for line in (settings.BASE_DIR / "requirements.txt").read_text().splitlines():
        match = PINNED.match(line)
        if match is None or (match[3] and match[3] != platform.system()):
            continue
        try:
            version = importlib.metadata.version(match[1])
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{match[1]} is missing")
            continue
        if version.split("+")[0] != match[2]:
            wrong.append(f"{match[1]} is {version}, pinned {match[2]}")
    yield Finding(
        "packages",
        "; ".join(wrong) or "as pinned in requirements.txt",
        "run make serve, or pip install -r requirements.txt" * bool(wrong),
    )


def check_data_directory() -> Iterator[Finding]:
    folder = settings.DATA_DIR
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding("data", f"{folder} cannot be written", "change its owner, or set LIGHTCONE_DATA_DIR")
        return
    if loose := data_open(folder):
        remedy = (
            "start serve, which closes what is its own; "
            "give Lightcone a LIGHTCONE_DATA_DIR of its own where other folders are in it"
        )
        yield Finding("data", f"{loose} is open to group or others", remedy)
    free = shutil.disk_usage(folder).free
    remedy = "free some disk space" if free < MIN_DISK_BYTES else ""
    yield Finding("data", f"{folder}, {free / GIB:.1f} GiB free", remedy)


def check_settings() -> Iterator[Finding]:
    """Report unknown variables, without a remedy: they stop nothing."""
    yield Finding("settings", settings.LIGHTCONE_SETTINGS_REMARKS or "all known")


def check_secrets() -> Iterator[Finding]:
    files = sorted(path for path in (settings.DATA_DIR / "secrets").glob("*") if path.is_file())
    loose = [path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]
    remedy = f"chmod 600 {settings.DATA_DIR}/secrets/*" if loose else ""
    yield Finding(
        "secrets", f"readable by others: {', '.join(loose)}" if loose else f"{len(files)} kept with mode 600", remedy
    )
    raw = os.environ.get("LIGHTCONE_API_KEY", "").strip()
    if raw:
        try:
            yield Finding("secrets", f"LIGHTCONE_API_KEY is the key {key_public_id(raw=raw)}")
        except KeyRefused as error:
            yield Finding("secrets", f"LIGHTCONE_API_KEY cannot be used: {error}", "correct it or unset it")


def check_model() -> Iterator[Finding]:
    try:
        choice = served_model_choice()
    except NoModel as error:
        yield Finding("model", "none", str(error))
        return
    path, projector = str(choice.path), settings.LIGHTCONE_MMPROJ
    is_fine, output = engine_check("engine.loading.inspection", path, path, ENGINE_CHECK_S, projector)
    if is_fine:
        yield Finding("model", f"{choice.name}: {choice.path} ({output})")
    else:
        servable = "a GGUF file or a Hugging Face folder that can be served (docs/models.md), or a name of `model list`"
        yield Finding("model", f"{choice.name}: {output}", f"set LIGHTCONE_MODEL to {servable}")


def check_device() -> Iterator[Finding]:
    """Report whether the engine can use the device with the settings that depend on it."""
    options = {
        "device": settings.LIGHTCONE_DEVICE,
        "weights": settings.LIGHTCONE_WEIGHTS,
        "kv_cache": settings.LIGHTCONE_KV_CACHE,
        "batch_invariant": settings.LIGHTCONE_BATCH_INVARIANT,
    }
    is_fine, output = engine_check("engine.execution.device", json.dumps(options), settings.LIGHTCONE_DEVICE)
    names = ", ".join(f"LIGHTCONE_{name}" for name in ("DEVICE", "WEIGHTS", "KV_CACHE", "BATCH_INVARIANT"))
    if is_fine:
        yield Finding("device", f"{settings.LIGHTCONE_DEVICE} computes")
    else:
        yield Finding("device", output, f"do that, or change {names}")


def check_spill() -> Iterator[Finding]:
    """Report whether the spill file can be made. A running server has made its own, which takes the same room."""
    wanted, folder = settings.LIGHTCONE_KV_SPILL_BYTES, settings.LIGHTCONE_KV_SPILL_FOLDER
    if not wanted:
        yield Finding("spill", "off: what the prefix cache gives away is computed again")
        return
    if settings.LIGHTCONE_DEVICE != "cpu" or not settings.LIGHTCONE_PREFIX_CACHING:
        problem = "LIGHTCONE_KV_SPILL_BYTES needs LIGHTCONE_DEVICE=cpu and LIGHTCONE_PREFIX_CACHING=1"
        yield Finding("spill", problem, "unset it, or change these")
        return
    if is_in_memory(folder):
        yield Finding(
            "spill",
            f"{folder} is in memory, and a file there takes what it should save",
            "set LIGHTCONE_KV_SPILL_FOLDER to a folder on a disk, or unset LIGHTCONE_KV_SPILL_BYTES and raise "
            "LIGHTCONE_KV_CACHE_BYTES",
        )
    try:
        room = room_bytes(folder)
    except OSError as error:
        yield Finding("spill", f"{folder}: {error.strerror}", "set LIGHTCONE_KV_SPILL_FOLDER to another folder")
        return
    text = f"{wanted / GIB:.1f} GiB in {folder}, which has room for {room / GIB:.1f}"
    if room < wanted and is_served():
        yield Finding("spill", f"{text} more beside the running server's")
        return
    remedy = "lower LIGHTCONE_KV_SPILL_BYTES, free space there, or set LIGHTCONE_KV_SPILL_FOLDER to another disk"
    yield Finding("spill", text, remedy if room < wanted else "")


def is_served() -> bool:
    """Return True if a server runs on this data directory."""
    try:
        InstanceLock(settings.DATA_DIR / "run" / "serve.lock").release()
    except AlreadyServed:
        return True
    return False


def check_database() -> Iterator[Finding]:
    try:
        executor = MigrationExecutor(connection)
        pending = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError as error:
        yield Finding(
            "database", f"{database_label()}: {str(error).strip()}", "check DATABASE_URL and that the server runs"
        )
        return
    yield Finding(
        "database",
        f"{database_label()}, {f'{pending} migrations to apply at the next start' if pending else 'up to date'}",
    )


def check_valkey() -> Iterator[Finding]:
    if settings.LIGHTCONE_EMBEDDED_VALKEY:
        path = embedded_valkey_socket(settings.DATA_DIR)
        yield Finding("valkey", f"embedded, {'answers on' if is_answering(path) else 'starts with serve on'} {path}")
        return
    try:
        policy = eviction_policy()
    except redis.RedisError as error:
        yield Finding(
            "valkey",
            f"LIGHTCONE_REDIS_URL does not answer: {error}",
            "start it, or unset LIGHTCONE_REDIS_URL for the embedded one",
        )
        return
    remedy = "" if policy == "noeviction" else "set maxmemory-policy noeviction: any other policy loses requests"
    yield Finding("valkey", f"the one of LIGHTCONE_REDIS_URL, maxmemory-policy {policy}", remedy)


def check_port() -> Iterator[Finding]:
    host, port = settings.LIGHTCONE_HOST, settings.LIGHTCONE_PORT
    try:
        InstanceLock(settings.DATA_DIR / "run" / "serve.lock").release()
    except AlreadyServed as served:
        yield Finding("port", f"{host}:{port}, {served}".split(" Stop it")[0])
        return
    problem = port_problem(host, port)
    yield Finding(
        "port", f"{host}:{port} {problem or 'is free'}", "set LIGHTCONE_PORT or LIGHTCONE_HOST" if problem else ""
    )


def check_proxy() -> Iterator[Finding]:
    proxies = settings.LIGHTCONE_TRUSTED_PROXIES
    signs = {"LIGHTCONE_TLS": settings.LIGHTCONE_TLS, "LIGHTCONE_TRUSTED_ORIGINS": settings.CSRF_TRUSTED_ORIGINS}
    named = " and ".join(name for name, value in signs.items() if value)
    if proxies:
        yield Finding("proxy", f"X-Forwarded-For of {', '.join(proxies)} is believed")
    elif named:
        problem = (
            f"{named} speaks of one, and none is listed: all clients have its address, "
            "also for bounds on wrong keys and passwords"
        )
        yield Finding("proxy", problem, "set LIGHTCONE_TRUSTED_PROXIES to the proxy's addresses")
    else:
        yield Finding("proxy", "none; one that stands before the web must be listed in LIGHTCONE_TRUSTED_PROXIES")


def check_machine() -> Iterator[Finding]:
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = available_memory_bytes()
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split())
    except (OSError, IndexError):
        flags = set()
    known = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_int8") if name in flags]
    text = f"{num_cores} cores, {', '.join(known) or 'no known vector extensions'}"
    slow = platform.machine() == "x86_64" and bool(flags) and "avx2" not in flags
    yield Finding("processor", text, "expect slow answers: the kernels want AVX2 or later" if slow else "")
    if memory is not None:
        yield Finding(
            "memory",
            f"{memory / GIB:.1f} GiB available",
            "close other programs: less than 1 GiB is left" if memory < GIB else "",
        )


def available_memory_bytes() -> int | None:
    """Return MemAvailable of Linux; None on other systems."""
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    check_python,
    check_packages,
    check_data_directory,
    check_settings,
    check_secrets,
    check_model,
    check_device,
    check_spill,
    check_database,
    check_valkey,
    check_port,
    check_proxy,
    check_machine,
)
