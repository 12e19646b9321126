"""The web process: `python -m lightcone_site.web`. Host, port and limits come from the settings."""

from __future__ import annotations

import argparse
import gc
import sys

import lightcone_site.http_server  # noqa: F401  (installs the asyncio reactor before another one is chosen)
from lightcone_site.private_files import umask_set
from lightcone_site.startup import settings_check

SWITCH_INTERVAL_S = 0.001
"""How long a thread that parses a large request may hold the interpreter while the loop with all streams waits."""


def main() -> None:
    umask_set()
    parser = argparse.ArgumentParser(prog="python -m lightcone_site.web", description=__doc__)
    parser.add_argument("--fd", type=int, help="a listening socket inherited from the parent, instead of host and port")
    socket_fd = parser.parse_args().fd
    settings_check()

    from lightcone_site.asgi import application  # isort: skip
    from django.conf import settings

    from chat.access.addresses import is_trusted_proxy
    from chat.api.middleware import body_admit, error_described
    from chat.generation.completions import readers_cut, readers_settle
    from chat.relay.commands import senders_warm
    from lightcone_site.logs import settings_remarks_log

    settings_remarks_log()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()  # loaded objects stay, and scanning them for garbage would delay every stream

    lightcone_site.http_server.serve(
        application,
        host=settings.LIGHTCONE_HOST,
        port=settings.LIGHTCONE_PORT,
        limits=settings.LIGHTCONE_HTTP_LIMITS,
        socket_fd=socket_fd,
        options=lightcone_site.http_server.ServerOptions(
            admit=body_admit,
            render_error=error_described,
            is_proxy=is_trusted_proxy,
            drain_s=settings.LIGHTCONE_DRAIN_S,
            drain_delay_s=settings.LIGHTCONE_DRAIN_DELAY_S,
            on_cut=readers_cut,
            settle=readers_settle,
        ),
        on_ready=senders_warm,
    )


if __name__ == "__main__":
    main()
