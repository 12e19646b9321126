"""`python -m lightcone_site.serve.watch FD`: the supervisor after the start, as a small program. Run by `handover.become_watcher` only.

It imports no Django and none of our packages that do (a test looks): what little of it asks for the database is a process of its own.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from lightcone_site.serve.console import Console
from lightcone_site.serve.handover import HELD_SIGNALS, Handover, take_over
from lightcone_site.serve.lock import InstanceLock
from lightcone_site.serve.readiness import Readiness, ready_status
from lightcone_site.serve.signals import SignalInbox
from lightcone_site.serve.status_poller import StatusPoller
from lightcone_site.serve.supervisor import Supervisor

STOP_ORDER = ("model", "web", "maintenance", "valkey")
"""The worker drains while the web still sends its streams; maintenance writes the last usage records before the log goes."""


def watch(handover: Handover, console: Console) -> None:
    """Watch, restart and report until a signal says stop, then drain and stop everything. The model was ready."""
    lock = InstanceLock.held(handover.lock)
    status = StatusPoller(handover.model)
    try:
        with SignalInbox().installed() as inbox:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)
            supervisor = Supervisor(console, inbox)
            for spec, state in handover.children:
                supervisor.adopt(spec, state)
            readiness = Readiness(
                console,
                ask=lambda: ready_status(handover.host, handover.port),
                status=status.latest,
                clock=time.monotonic,
                model=handover.model,
                url=handover.url,
                was_ready=True,
            )

            def each_turn() -> None:
                readiness.turn()
                if readiness.is_ready:
                    status.close()

            try:
                supervisor.run(each_turn)
            finally:
                status.close()
                stop_everything(console, supervisor, handover.socket_path)
    finally:
        lock.release()


def stop_everything(console: Console, supervisor: Supervisor, socket_path: str) -> None:
    """Drain and stop the components; `socket_path` as in `Handover`."""
    console.blank()
    supervisor.stop(STOP_ORDER)
    if socket_path:
        Path(socket_path).unlink(missing_ok=True)


if __name__ == "__main__":
    watch(take_over(int(sys.argv[1])), Console())
