"""Environments of the clients under .venv/clients, rebuilt when pins change.

Run `python -m tests.contract.clients.environments`, with names for these clients only, or with `--python` for those
without Node.js. The model that some clients need comes with them (agent_model.py). A client that this machine cannot
install is named with the reason. Uses the standard library and pip, as it runs before anything else is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.contract.clients import agent_model
from tests.contract.clients.catalogue import CLIENTS, HERE, Client

ROOT = HERE.parents[2]
PLACE = ROOT / ".venv" / "clients"
SHARED = HERE / "shared"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq"]
NODE_AT_LEAST = 18
RUN_TIMEOUT_S = 240.0
AGENT_TIMEOUT_S = 3600.0
"""Agents send prompts of some 20000 tokens, which two cores compute for minutes."""


@dataclass(frozen=True, slots=True)
class Environment:
    client: Client

    @property
    def folder(self) -> Path:
        return PLACE / self.client.environment

    @property
    def _stamp(self) -> Path:
        return self.folder / "complete"

    def _digest(self) -> str:
        """Return a digest of the pins and of the code that reads them."""
        said = hashlib.sha256(f"{sys.version_info[:2]}".encode())
        for name in ("package.json", "package-lock.json") if self.client.is_node else (self.client.pins,):
            said.update((self.client.folder / name).read_bytes())
        return said.hexdigest()

    def is_ready(self) -> bool:
        return self._stamp.is_file() and self._stamp.read_text() == self._digest()

    def missing(self) -> str | None:
        """Return why this machine cannot install it, None if it can."""
        if not self.client.is_node:
            return None
        node = shutil.which("node")
        if node is None or shutil.which("npm") is None:
            return "needs Node.js and npm (apt-get install nodejs npm)"
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        if int(version.lstrip("v").split(".")[0]) < NODE_AT_LEAST:
            return f"needs Node.js {NODE_AT_LEAST} or later, and this is {version}"
        return None

    def make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.client.is_node:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(self.client.folder / name, self.folder)
            subprocess.run(
                ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
                cwd=self.folder,
                check=True,
            )
        else:
            # The pip of the tests installs for it, and nothing is compiled that the script never imports.
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.folder)], check=True)
            pins = str(self.client.folder / self.client.pins)
            subprocess.run(
                [*PIP, "--python", str(self.folder / "bin" / "python"), "install", "--no-compile", "-r", pins],
                check=True,
            )
        self._stamp.write_text(self._digest())

    def run(self, *, base_url: str, api_key: str, model: str, scratch: Path) -> list[dict]:
        """Run the script and return its features in order; `scratch` is a folder for its files."""
        foreign = ("LIGHTCONE_", "OPENAI_", "ANTHROPIC_", "CLAUDE_", "CODEX_", "OLLAMA_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        timeout_s = AGENT_TIMEOUT_S if self.client.needs_agent_model else RUN_TIMEOUT_S
        settings = {
            "LIGHTCONE_BASE_URL": base_url,
            "LIGHTCONE_API_KEY": api_key,
            "LIGHTCONE_MODEL": model,
            "LIGHTCONE_SCRATCH": str(scratch),
        }
        own = {"PYTHONPATH": str(SHARED), "PYTHONPYCACHEPREFIX": str(self.folder / "compiled")}
        try:
            done = subprocess.run(
                self._command(),
                env=inherited | settings | own,
                cwd=scratch,
                capture_output=True,
                text=True,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"the script ran longer than {timeout_s:.0f} s, and printed {error.stdout!r}") from None
        if done.returncode != 0:
            raise RuntimeError(f"the script ended with {done.returncode}\n{done.stderr[-4000:]}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"feature"')]

    def _command(self) -> list[str]:
        if not self.client.is_node:
            return [str(self.folder / "bin" / "python"), str(self.client.script)]
        # Node looks for packages beside the file that imports them.
        for source in (SHARED / "reporting.mjs", self.client.script):
            shutil.copy(source, self.folder)
        return ["node", str(self.folder / self.client.script.name)]


def main(words: list[str]) -> int:
    names = [word for word in words if not word.startswith("-")]
    unknown = set(names) - {client.name for client in CLIENTS}
    if unknown:
        sys.exit(
            f"No such client: {', '.join(sorted(unknown))}. There are {', '.join(client.name for client in CLIENTS)}."
        )
    wanted = [
        client
        for client in CLIENTS
        if not (names and client.name not in names)
        and not ("--python" in words and client.is_node)
        and not client.sends_media  # it runs in the environment of another
    ]
    if any(client.needs_agent_model and not Environment(client).missing() for client in wanted):
        agent_model.provide(PLACE / "models")
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for said in pool.map(provide, wanted):
            if said:
                sys.stdout.write(f"{said}\n")
                sys.stdout.flush()
    return 0


def provide(client: Client) -> str:
    """Install what is missing; return a message, "" if nothing was."""
    environment = Environment(client)
    if environment.is_ready():
        return ""
    missing = environment.missing()
    if missing:
        return f"Skipped {client.name}: {missing}"
    began = time.monotonic()
    environment.make()
    return f"Installed {client.name} ({client.package} {client.version}, {time.monotonic() - began:.0f} s)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
