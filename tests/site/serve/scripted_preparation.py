"""A stand-in for the process with Django: `scripted_preparation.py FOLDER MODE FD` answers the supervisor.

Its components are shell scripts, a web server that answers 200 to everything, and a real Valkey.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import time
from pathlib import Path

from lightcone_site.serve.child import ChildSpec
from lightcone_site.serve.embedded_valkey import valkey_spec

WORKER = "trap 'echo stopped; exit 0' TERM; echo up >> {0}.starts; while :; do sleep 0.02; done"
SHORT_LIVED = "echo up >> {0}.starts; [ -e died ] || {{ touch died; kill -9 $$; }}; "
WEB = """
import signal, socket, sys
def stop(*_):
    print("stopped", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
with open("web.starts", "a") as starts: starts.write("up\\n")
while True:
    with server.accept()[0] as client:
        client.recv(4096)
        client.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
"""


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


class Preparation:
    def __init__(self, folder: Path, mode: str) -> None:
        self._folder, self._mode = folder, mode

    def plan(self, api_key: str) -> dict:
        port = int((self._folder / "port").read_text())
        return {
            "data_dir": str(self._folder),
            "listen_host": "127.0.0.1",
            "port": port,
            "host": "127.0.0.1",
            "url": f"http://127.0.0.1:{port}",
            "model": "tiny",
            "valkey_socket": str(self._folder / "socket"),
        }

    def components(self) -> dict:
        port = (self._folder / "port").read_text()
        script = SHORT_LIVED + WORKER if self._mode == "dead" else WORKER
        valkey = valkey_spec(
            data_dir=self._folder,
            socket_path=self._folder / "socket",
            log_path=self._folder / "valkey.log",
            max_bytes=2**26,
        )
        specs = [
            valkey,
            self._spec("web", sys.executable, "-c", WEB, port),
            self._spec("model", "/bin/sh", "-c", script.format("model")),
            self._spec("maintenance", "/bin/sh", "-c", WORKER.format("maintenance")),
        ]
        return {spec.name: dataclasses.asdict(spec) for spec in specs}

    def prepare(self) -> None:
        if self._mode == "slow":
            (self._folder / "preparing").touch()
            wait_for(self._folder / "go")

    def accounts(self, api_key: str, admin_password: str) -> list:
        if self._mode == "stopped":
            (self._folder / "preparing").touch()
            wait_for(self._folder / "go")
        if self._mode == "dead":
            wait_for(self._folder / "died")
        return [("Sign in", f"admin / {admin_password}"), ("API key", api_key)]

    def status(self, model: str) -> list:
        return ["loading", "loading weights 5%"]

    def _spec(self, name: str, *command: str) -> ChildSpec:
        return ChildSpec(name, command, self._folder, self._folder / f"{name}.log", dict(os.environ))


def main() -> None:
    preparation = Preparation(Path(sys.argv[1]), sys.argv[2])
    with socket.socket(fileno=int(sys.argv[3])) as connection:
        lines = connection.makefile("rw")
        for line in lines:
            name, arguments = json.loads(line)
            lines.write(json.dumps({"result": getattr(preparation, name)(**arguments)}, default=str) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()
