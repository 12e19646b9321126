"""First tokens of long prompts: ours over HTTP with everything on, beside peers, in one sitting.

    python benchmarks/first_token.py --model FILE [--tokens 1540,4000,8190] [--tries 4]
        [--openvino PYTHON] [--llama BINARY] [--beside]

`--openvino` names a Python interpreter with openvino-genai, which reads the same GGUF file in its own process, without
HTTP (`LLMPipeline`); `--llama` llama.cpp's `llama-server`. Each prompt is new: random words, as token ids. All systems
are started at once and compute by turns, as a machine may be slower for a while. Prints seconds from the request to the
first token, and the ratio of the least ones. With `--beside` a stream of ours runs beside our prompts, and its gaps are
printed; ratios then mean nothing. Use an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from threading import Event

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.installation import serving  # noqa: E402
from benchmarks.serving import VOCABULARY  # noqa: E402

OURS, OPENVINO, LLAMA = "Lightcone", "OpenVINO", "llama.cpp"
START_S = 600
OPENVINO_SCRIPT = """
import json, sys, time
import numpy, openvino, openvino_genai
pipeline = openvino_genai.LLMPipeline(sys.argv[1], "CPU")
tokenizer = pipeline.get_tokenizer()
config = openvino_genai.GenerationConfig(max_new_tokens=1, ignore_eos=True, do_sample=False)
print("ready", flush=True)
for line in sys.stdin:
    number, text = json.loads(line)
    ids = tokenizer.encode(text).input_ids.data[:, :number]
    assert ids.shape[1] == number
    inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
    start = time.perf_counter()
    pipeline.generate(inputs, config)
    print(time.perf_counter() - start, flush=True)
"""


def words(num_tokens: int) -> str:
    """Return random words of at least so many tokens."""
    return " ".join(random.SystemRandom().choices(VOCABULARY, k=num_tokens + 16))


@contextmanager
def ours(options: argparse.Namespace) -> Iterator[Callable[[int], float]]:
    """Serve the model, and yield a function that times the first token of a prompt of so many tokens."""
    settings = {"LIGHTCONE_MODEL": options.model, "LIGHTCONE_MODEL_NAME": "model"}
    with serving(settings=settings) as installation:
        headers = {"Authorization": f"Bearer {installation.key}"}
        body = {"model": "model", "max_tokens": 2}
        with httpx.Client(base_url=f"http://127.0.0.1:{installation.port}", timeout=3600, headers=headers) as client:
            seconds = partial(_seconds, client, "prompt", "/v1/completions", body)
            yield partial(_beside_a_stream, client, seconds) if options.beside else seconds


@contextmanager
def llama(options: argparse.Namespace) -> Iterator[Callable[[int], float]]:
    """Do the same with llama.cpp's server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    context = ["-c", str(max(options.tokens) + 256), "-np", "1", "-t", str(os.cpu_count())]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen([options.llama, "-m", options.model, *address, *context], stdout=log, stderr=log)
        try:
            _await(f"http://127.0.0.1:{port}/health", server)
            body = {"n_predict": 2, "cache_prompt": False}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=3600) as client:
                yield partial(_seconds, client, "content", "/completion", body)
        except SystemExit:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-2000:])
            raise
        finally:
            server.terminate()
            server.wait()


@contextmanager
def openvino(options: argparse.Namespace) -> Iterator[Callable[[int], float]]:
    """Do the same with OpenVINO GenAI in a process of its own."""
    command = [options.openvino, "-c", OPENVINO_SCRIPT, options.model]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while process.stdout.readline().strip() != "ready":
            if process.poll() is not None:
                raise SystemExit("OpenVINO ended")
        given, found = process.stdin, process.stdout

        def seconds(num_tokens: int) -> float:
            given.write(json.dumps([num_tokens, words(num_tokens)]) + "\n")
            given.flush()
            return float(found.readline())

        yield seconds
        given.close()


def _seconds(client: httpx.Client, field: str, path: str, body: dict[str, object], num_tokens: int) -> float:
    """Time the first token of a prompt. field: what /tokenize calls a text."""
    given = client.post("/tokenize", json={field: words(num_tokens)}).raise_for_status().json()
    ids = given["tokens"][:num_tokens]
    assert len(ids) == num_tokens
    body = {**body, "prompt": ids, "stream": True, "ignore_eos": True, "temperature": 0}
    start = time.perf_counter()
    with client.stream("POST", path, json=body) as response:
        if response.status_code != 200:
            raise SystemExit(f"{response.status_code} {response.read()[:300]!r}")
        next(line for line in response.iter_lines() if line.startswith("data: {"))
        return time.perf_counter() - start


def _beside_a_stream(client: httpx.Client, seconds: Callable[[int], float], num_tokens: int) -> float:
    """Time the first token of a prompt while a stream runs, and print the gaps of the stream until then."""
    body = {"model": "model", "prompt": words(8), "max_tokens": 4096, "stream": True, "ignore_eos": True}
    started, gaps, is_over = Event(), list[float](), Event()

    def read() -> None:
        last = None
        with client.stream("POST", "/v1/completions", json=body) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    now = time.perf_counter()
                    gaps.extend([] if last is None else [now - last])
                    last = now
                    started.set()
                if is_over.is_set():
                    return

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            if not started.wait(60):
                raise SystemExit("the stream did not begin")
            gaps.clear()
            found = seconds(num_tokens)
            until = sorted(gaps) or [0.0]
        finally:
            is_over.set()
        reading.result()
    text = "gaps beside %d tokens: median %.2f, 95 %% %.2f, longest %.2f s, %d tokens"
    print(text % (num_tokens, median(until), until[len(until) * 95 // 100], until[-1], len(until)), flush=True)
    return found


def _await(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise SystemExit("the server did not become ready")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--tokens", default="1540,4000,8190", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--tries", type=int, default=4)
    parser.add_argument("--openvino", help="a Python interpreter with openvino-genai")
    parser.add_argument("--llama", help="llama.cpp's llama-server")
    parser.add_argument("--beside", action="store_true", help="run a stream of ours beside the prompts")
    options = parser.parse_args()
    systems = {OURS: ours}
    systems |= {OPENVINO: openvino} if options.openvino else {}
    systems |= {LLAMA: llama} if options.llama else {}
    least = {}
    with ExitStack() as stack:
        timers = {name: stack.enter_context(system(options)) for name, system in systems.items()}
        for seconds in timers.values():
            seconds(64)
        for number in options.tokens:
            times: dict[str, list[float]] = {name: [] for name in systems}
            for _ in range(options.tries):
                for name, seconds in timers.items():
                    times[name].append(seconds(number))
            for name, found in times.items():
                least[name, number] = min(found)
                shown = ", ".join(f"{time:.2f}" for time in found)
                print(f"{name}, {number} tokens: {shown} s, load {os.getloadavg()[0]:.1f}", flush=True)
    for name in systems:
        if name != OURS:
            ratios = [f"{number}: {least[OURS, number] / least[name, number]:.2f}" for number in options.tokens]
            print(f"{OURS} / {name}: {', '.join(ratios)}")


if __name__ == "__main__":
    main()
