"""A Lightcone as a person starts it: `manage.py serve` with its own process, data directory and port."""

from __future__ import annotations

import atexit
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PREPARE = """
import django
django.setup()
from lightcone_site.serve.console import Console
from lightcone_site.serve.preparation import update_files
update_files(Console())
"""
MAKE_KEY = """
import json, sys
import django
django.setup()
from chat.access.models import Project
from chat.access.chat_projects import default_project
from chat.access.keys import key_create
project = default_project()
if sys.argv[2]:
    project, _ = Project.objects.get_or_create(org=project.org, name=sys.argv[2])
sys.stdout.write(key_create(project=project, name="of a test", **json.loads(sys.argv[1]))[1])
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def inherited_environment() -> dict[str, str]:
    """Return the environment of the tests without settings of Lightcone."""
    ours = ("LIGHTCONE_", "DJANGO_", "DATABASE_", "OMP_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@cache
def prepared_folder() -> Path:
    """Return a data directory as the first start prepares it: all tables, no rows of ours, collected static files.

    To make it takes eight seconds.
    """
    folder = Path(tempfile.mkdtemp(prefix="lc-prepared-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "run").mkdir()
    ours = {"LIGHTCONE_DATA_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "lightcone_site.settings"}
    subprocess.run(
        [sys.executable, "-c", PREPARE],
        cwd=ROOT,
        env=inherited_environment() | ours,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=120,
    )
    return folder


@dataclass
class ServedLightcone:
    """A served Lightcone to start, ask and stop.

    `base_url` is the root, `api_url` the base for OpenAI-style clients. `environment` overrides settings.
    A new one begins prepared, with an empty database; one that finds a data directory prepares it itself.
    """

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    api_key: str = field(default_factory=lambda: f"lc_accept0001_{secrets.token_hex(24)}")
    admin_user: str = "admin"
    admin_password: str = "correct-horse-battery"  # noqa: S105
    model: str = "SmolLM2-135M-Instruct"
    port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def api_url(self) -> str:
        return f"{self.base_url}/v1"

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def environment_of_all(self) -> dict[str, str]:
        settings = {
            # Threads of a core that wait actively only take time from another process of the tests.
            **({"LIGHTCONE_NUM_THREADS": "1"} if "PYTEST_XDIST_WORKER" in os.environ else {}),
            "LIGHTCONE_DATA_DIR": str(self.data_dir),
            "LIGHTCONE_PORT": str(self.port),
            "LIGHTCONE_METRICS_PORT": str(self.metrics_port),
            "LIGHTCONE_API_KEY": self.api_key,
            "LIGHTCONE_ADMIN_PASSWORD": self.admin_password,
        }
        return inherited_environment() | settings | self.environment

    @contextmanager
    def running(self) -> Iterator[ServedLightcone]:
        """Start, wait until ready, and stop at the end in any case."""
        try:
            self.start()
            self.wait_until_ready()
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if "DATABASE_URL" not in self.environment and not self.data_dir.exists():
            shutil.copytree(prepared_folder(), self.data_dir)
        with (self.folder / "console.log").open("ab") as console:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "serve"],
                cwd=ROOT,
                env=self.environment_of_all,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def make_key(self, *, project: str = "", **policy: object) -> str:
        """Create a key and return its text, in the first project or the named one; for keys that the command line
        cannot make.

        `policy` is as `chat.access.keys.key_create` takes it.
        """
        done = subprocess.run(
            [sys.executable, "-c", MAKE_KEY, json.dumps(policy), project],
            cwd=ROOT,
            env=self.environment_of_all | {"DJANGO_SETTINGS_MODULE": "lightcone_site.settings"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    def console(self) -> str:
        """Return all console output of the supervisor so far."""
        return (self.folder / "console.log").read_text(errors="replace")

    def logs(self) -> str:
        """Return the ends of the components' logs."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.data_dir.glob("logs/*.log"))
        )

    def get(self, path: str) -> tuple[int, dict[str, str], str]:
        return self.ask("GET", path)

    def post(self, path: str, body: object) -> tuple[int, dict[str, str], str]:
        return self.ask("POST", path, json.dumps(body))

    def ask(
        self, method: str, path: str, body: str | None = None, *, timeout_s: float = 20.0
    ) -> tuple[int, dict[str, str], str]:
        """Return status, headers (lower-case names) and body; status 0 without an answer. Sends the API key."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        headers = {"Authorization": f"Bearer {self.api_key}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return (
                answer.status,
                {name.lower(): value for name, value in answer.getheaders()},
                answer.read().decode(errors="replace"),
            )
        except (OSError, http.client.HTTPException):
            return 0, {}, ""
        finally:
            connection.close()

    def wait_until_ready(self, timeout_s: float = 180.0) -> None:
        """Wait until the model is ready. Fail at once if the console reports that it cannot be served."""
        trouble = f"!!!  {self.model}: "
        what = "/health/ready to answer 200"
        self.wait_for(
            lambda: self.get("/health/ready")[0] == 200 or trouble in self.console(), timeout_s=timeout_s, what=what
        )
        assert trouble not in self.console(), f"{self.console()}\n{self.logs()}"

    def wait_for(self, is_true, *, timeout_s: float, what: str, is_running: bool = True) -> None:
        """Poll a condition of another process. Fail with console and logs at a time-out or if the process ends."""
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while not is_true():
            if is_running and self.process.poll() is not None:
                raise AssertionError(
                    f"serve ended with {self.process.returncode} before {what}\n{self.console()}\n{self.logs()}"
                )
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout_s} s for {what}\n{self.console()}\n{self.logs()}")
            time.sleep(0.1)

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 60.0) -> int:
        """Signal the supervisor, wait and return its exit code. Kill everything after a time-out."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            for pid, _ in self.processes_left():
                os.kill(pid, signal.SIGKILL)
            raise

    def processes_left(self) -> list[tuple[int, str]]:
        """Return living processes whose command line names this installation's data directory."""
        mark = os.fsencode(self.data_dir)
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                words, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if words and (mark in words or mark in environment):
                found.append((int(entry.name), words.replace(b"\0", b" ").decode(errors="replace").strip()))
        return found
