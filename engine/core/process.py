"""The entry point of a core's process: `python -m engine.core.process FD`, started by `engine.core.link.ProcessLink`.

It leaves at once at end of file of the link behind the descriptor FD. It ignores the signals that a terminal or a
supervisor sends to the whole process group: the worker decides when its core ends.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from multiprocessing.connection import Connection

from engine.core.heartbeat import IMPORT_LIMIT_S, HeartbeatThread
from engine.core.link import PipeChannel, unpack_config


def main(descriptor: int) -> None:
    """Serve until Shutdown or end of file, and end the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s core: %(message)s")
    connection = Connection(descriptor)
    config = unpack_config(connection.recv_bytes())
    channel = PipeChannel(connection, on_closed=lambda: os._exit(0))
    # NOTE: imported late, as that takes seconds, and minutes where kernels are compiled for the first time on a slow
    # machine. The end of the worker must be noticed meanwhile, and the worker must hear that this process is alive.
    heartbeat = HeartbeatThread(channel, IMPORT_LIMIT_S)
    heartbeat.start()
    gc.disable()  # until the model is loaded: it would visit the many objects that stay, a tenth of the imports' time
    from engine.core.build import serve

    heartbeat.stopped.set()
    serve(config, channel)
    # NOTE: threads of libraries may still run, and abort if the interpreter ends before them.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
