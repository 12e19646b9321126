"""The process of a core ends when it has served."""

from __future__ import annotations

import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.core.link import pack_config

SERVES_WHILE_A_THREAD_RUNS = """
import sys, threading
from engine.core import build, process
def serve(config, channel):
    threading.Thread(target=threading.Event().wait).start()
build.serve = serve
process.main(int(sys.argv[1]))
"""


@pytest.mark.slow
def test_it_ends_although_threads_of_libraries_still_run():
    ours, its = socket.socketpair()
    with its, Connection(ours.detach()) as link:
        child = subprocess.Popen(
            [sys.executable, "-c", SERVES_WHILE_A_THREAD_RUNS, str(its.fileno())], pass_fds=[its.fileno()]
        )
        link.send_bytes(pack_config(EngineConfig(Path("model"), "model")))
        try:
            assert child.wait(timeout=60) == 0
        finally:
            child.kill()
            child.wait()
