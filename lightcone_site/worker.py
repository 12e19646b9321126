"""The entry point of a worker process: `python -m lightcone_site.worker`, with LIGHTCONE_ROLE=model or maintenance.

The `celery` command with the options below would do the same, but loads 7 MiB of terminal libraries.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import logging
import os
import sys
from collections.abc import Sequence

from celery.utils.nodenames import default_nodename, host_format
from django.conf import settings

from chat.workers.engine_start import core_start
from chat.workers.exit import stop_is_bounded
from lightcone_site.celery import STEPS, app
from lightcone_site.logs import settings_remarks_log
from lightcone_site.private_files import umask_set
from lightcone_site.startup import settings_check

STOP_S = {"model": 8.0, "maintenance": 12.0}
"""The time in which a worker stops, a model worker after its drain; the supervisor allows each a little more."""
THREADS = {"model": 16, "maintenance": 2}
M_ARENA_MAX = -8
"""The parameter of mallopt(3)."""


def main(arguments: Sequence[str]) -> int:
    umask_set()
    role = os.environ.get("LIGHTCONE_ROLE", "")
    if role not in STEPS:
        sys.exit(f"LIGHTCONE_ROLE must be one of {', '.join(STEPS)}, got {role!r}")
    parser = argparse.ArgumentParser(prog="python -m lightcone_site.worker", description=__doc__)
    parser.add_argument(
        "--name", default=f"{role}@%h", help="of this worker, different from that of any other; %%h: of the host"
    )
    options = parser.parse_args(arguments)
    settings_check()
    core = core_start() if role == "model" else None
    _use_one_arena()
    stop_is_bounded(STOP_S[role] + (settings.LIGHTCONE_DRAIN_S if role == "model" else 0))
    worker = app.Worker(
        hostname=host_format(default_nodename(options.name)),
        pool_cls="threads",
        concurrency=THREADS[role],
        queues="maintenance",  # a model worker consumes the queue of its model instead (chat.workers.host_step)
        loglevel=logging.INFO,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        started_core=core,
    )
    settings_remarks_log()  # only now is logging set up
    worker.start()
    code: int | None = worker.exitcode
    return code or 0


def _use_one_arena() -> None:
    """Let glibc keep one heap for all threads instead of one for each; threads of a worker seldom allocate at once."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
