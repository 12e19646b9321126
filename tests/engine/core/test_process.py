"""The process of a core ends when it has served."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.core.link import ProcessLink, pack_config
from engine.messages import Heartbeat

SERVES_WHILE_A_THREAD_RUNS = """
import sys, threading
from engine.core import build, process
def serve(config, channel):
    threading.Thread(target=threading.Event().wait).start()
build.serve = serve
process.main(int(sys.argv[1]))
"""

WAITS_BEFORE_IT_IMPORTS_ITS_CORE = """
import sys
class Waits:
    def find_spec(self, name, path=None, target=None):
        if name == "engine.core.build":
            open(sys.argv[1]).close()
sys.meta_path.insert(0, Waits())
from engine.core import process
process.main(int(sys.argv[2]))
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_it_sends_heartbeats_while_it_imports_and_compiles(tmp_path):
    """To compile all kernels beside other work takes longer than a silent core may live: no core ever started."""
    os.mkfifo(pipe := tmp_path / "pipe")
    program = ("-c", WAITS_BEFORE_IT_IMPORTS_ITS_CORE, str(pipe))
    link = ProcessLink(EngineConfig(tmp_path / "missing.gguf", "missing", step_timeout_s=60.0), program)
    try:
        assert isinstance(link.receive(), Heartbeat)
    finally:
        link.close(0.0)


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
