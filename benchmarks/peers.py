"""Our server and its peers under the same workloads: start each server anew for each line, and print ratios.

    python benchmarks/peers.py [--llama BINARY] [--vllm BINARY --vllm-model FOLDER] [--large GGUF] [--once]
        [W1 W8 W32 WP WS WC L1 L8]

Without peers it measures ours alone, as `make bench` does. `--llama` names llama.cpp's `llama-server`, which gets the
same GGUF file; `--vllm` names vLLM's command and the folder of the same weights in bf16. `--large` names a model of a
few gigabytes for L1 and L8. WC, whose answer copies the prompt, is measured with and without prompt look-up. `--once`
starts a server once for all lines of one model, which is quicker; later lines then find it warm. Use a quiet machine
and quote ratios, as absolute figures drift. Targets are in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from serving import SMALL, WORKLOADS, Figures, Server, measure

ROOT = Path(__file__).resolve().parent.parent
START_S = 600
LARGE = ("L1", "L8")
OURS, PLAIN, LLAMA, VLLM = "Lightcone", "Lightcone without look-up", "llama.cpp", "vLLM"


@dataclass(frozen=True, slots=True)
class Target:
    """A target: in `workload` our `figure` is at least, or at most, `bound` times the `peer`'s."""

    workload: str
    figure: str
    peer: str
    bound: float
    at_least: bool = False

    def verdict(self, ours: Figures, theirs: Figures) -> str:
        """Return one line of the table of ratios."""
        mine, other = getattr(ours, self.figure), getattr(theirs, self.figure)
        if not mine or not other:
            return f"| {self.workload} | {self.figure} | {self.peer} | not measured | |"
        ratio = mine / other
        is_met = ratio >= self.bound if self.at_least else ratio <= self.bound
        limit = f"{'at least' if self.at_least else 'at most'} {self.bound}"
        return (
            f"| {self.workload} | {self.figure} | {self.peer} | {ratio:.2f} | {limit}: "
            f"{'met' if is_met else 'MISSED'} |"
        )


TARGETS = (
    Target("W1", "tokens_per_s", LLAMA, 1.25, at_least=True),
    Target("W1", "gap_p50_s", LLAMA, 0.9),
    Target("W1", "first_token_p50_s", VLLM, 0.7),
    Target("W8", "tokens_per_s", VLLM, 1.6, at_least=True),
    Target("W32", "tokens_per_s", VLLM, 1.7, at_least=True),
    Target("W32", "first_token_p95_s", VLLM, 1.0),
    Target("WP", "first_token_p50_s", VLLM, 0.6),
    Target("WS", "wall_s", VLLM, 0.7),
    Target("WC", "tokens_per_s", PLAIN, 2.0, at_least=True),
    Target("L1", "tokens_per_s", LLAMA, 0.85, at_least=True),
    Target("L8", "tokens_per_s", LLAMA, 3.0, at_least=True),
)


class Starter:
    """A starter of the servers that the options name."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options

    def names(self, workload: str) -> list[str]:
        """Return the servers that take part in a workload, ours first."""
        named = [OURS]
        named += [PLAIN] if WORKLOADS[workload].copies else []
        named += [LLAMA] if self._options.llama else []
        named += [VLLM] if self._options.vllm and workload not in LARGE else []
        return named

    def starts(self, workloads: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Yield each server to start and its workloads, in order."""
        lines = [(name, workload) for workload in workloads for name in self.names(workload)]
        if not self._options.once:
            return [(name, [workload]) for name, workload in lines]
        together: dict[tuple[str, bool], list[str]] = {}
        for name, workload in lines:
            together.setdefault((name, workload in LARGE), []).append(workload)
        return [(name, group) for (name, _), group in together.items()]

    @contextmanager
    def running(self, name: str, workload: str) -> Iterator[Server]:
        """Start a server, wait until it can answer, and stop it afterwards."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        base, key = f"http://127.0.0.1:{port}", f"lc_bench00001_{secrets.token_hex(24)}"
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            command, settings, ready = self._command(name, workload, port, folder, key)
            log = Path(folder) / "server.log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env={**os.environ, **settings},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            try:
                _await(process, base + ready, log)
                headers = {"Authorization": f"Bearer {key}"}
                model = httpx.get(f"{base}/v1/models", headers=headers, timeout=60).json()["data"][0]["id"]
                yield Server(f"{base}/v1", model, key)
            finally:
                process.send_signal(signal.SIGINT if name == VLLM else signal.SIGTERM)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def _command(
        self, name: str, workload: str, port: int, folder: str, key: str
    ) -> tuple[list[str], dict[str, str], str]:
        """Return command line, environment, and the path that answers 200 when the server is ready."""
        options, model = self._options, str(self._options.large if workload in LARGE else self._options.model or "")
        if name == LLAMA:
            command = [
                options.llama,
                "-m",
                model,
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "-c",
                "65536",
                "-np",
                "32",
            ]
            return [*command, "-t", str(os.cpu_count()), "--jinja", "--api-key", key], {}, "/health"
        if name == VLLM:
            command = [
                options.vllm,
                "serve",
                options.vllm_model,
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--api-key",
                key,
            ]
            settings = {"VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
            return [*command, "--max-model-len", "4096", "--dtype", "bfloat16"], settings, "/health"
        settings = {"LIGHTCONE_DATA_DIR": folder, "LIGHTCONE_PORT": str(port), "LIGHTCONE_API_KEY": key}
        settings |= {"LIGHTCONE_ADMIN_PASSWORD": secrets.token_hex(8)} | ({"LIGHTCONE_MODEL": model} if model else {})
        settings |= {"LIGHTCONE_PROMPT_LOOKUP": "0"} if name == PLAIN else {}
        return [sys.executable, "manage.py", "serve"], settings, "/health/ready"


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until the address answers. End the benchmark with the server's last output if it never does."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise SystemExit(f"{process.args} did not start:\n" + log.read_text(errors="replace")[-2000:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "workloads", nargs="*", help=f"any of {', '.join(WORKLOADS)}; all that the named models allow when absent"
    )
    parser.add_argument("--model", help="GGUF file; the default model for us alone when absent")
    parser.add_argument("--llama", help="llama.cpp's llama-server")
    parser.add_argument("--vllm", help="vLLM's command")
    parser.add_argument("--vllm-model", help="folder of the same weights in bf16")
    parser.add_argument("--once", action="store_true", help="start each server once for all workloads of a model")
    parser.add_argument("--large", help="GGUF file of a few gigabytes")
    options = parser.parse_args()
    if options.llama and not options.model:
        parser.error("--llama needs --model: both serve the same file")
    if options.vllm and not options.vllm_model:
        parser.error("--vllm needs --vllm-model")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that no server is left behind
    starter = Starter(options)
    found: dict[tuple[str, str], Figures] = {}
    print(
        "| workload | server | tokens/s | first token p50, p95 | gap p50 | all | errors |\n"
        "| --- | --- | --- | --- | --- | --- | --- |"
    )
    for name, workloads in starter.starts(options.workloads or (*SMALL, *(LARGE if options.large else ()))):
        with starter.running(name, workloads[0]) as server:
            for workload in workloads:
                figures = found[workload, name] = asyncio.run(measure(server, WORKLOADS[workload]))
                print(_line(workload, name, figures), flush=True)
                for error in figures.errors:
                    print(f"{workload}, {name}: {error}", file=sys.stderr)
    print("\n| workload | figure | beside | ratio | target |\n| --- | --- | --- | --- | --- |")
    for target in TARGETS:
        if (target.workload, target.peer) in found:
            print(target.verdict(found[target.workload, OURS], found[target.workload, target.peer]))


def _line(workload: str, name: str, figures: Figures) -> str:
    numbers = {key: "-" if value is None else value for key, value in dataclasses.asdict(figures).items()}
    gap = "-" if figures.gap_p50_s is None else f"{figures.gap_p50_s * 1000:.1f} ms"
    first = f"{numbers['first_token_p50_s']} s, {numbers['first_token_p95_s']} s"
    return (
        f"| {workload} | {name} | {figures.tokens_per_s} | {first} | {gap} | "
        f"{figures.wall_s} s | {len(figures.errors)} |"
    )


if __name__ == "__main__":
    main()
