"""Processor time per streamed token of web, worker, Valkey and maintenance, with a scripted core instead of a model.

    python benchmarks/relay.py [--streams 1,16,64] [--tokens 256] [--step-ms 10] [--requests 2] [--model PATH]
        [--real] [--hold]

Starts `manage.py serve` in its own data directory. A child replaces the worker's core and gives every sequence its next
token each `--step-ms` (0: without a pause); everything else is as served. `--real` keeps the real core. For each number
of streams it prints microseconds of processor time per token and process (utime + stime of /proc), tokens per second of
the web process's time, and the p50 from the arrival of a request to its first step. On a busy machine processor times
remain useful, wall clock does not. `--hold` prints the process ids and waits for Enter before the measurement, for a
profiler. Linux only.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import http.client
import json
import os
import signal
import sqlite3
import statistics
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.installation import Installation, processor_us, serving  # noqa: E402

MEASURED = frozenset({"web", "worker", "core", "valkey", "maintenance", "helpers"})
SCRIPTED = (__file__, "serve")
"""The command of an installation with a scripted core."""


# The processes that are measured


def serve() -> None:
    """Run `manage.py serve` with `worker` below as its model worker."""
    from lightcone_site.serve import serving
    from lightcone_site.serve.console import Console
    from lightcone_site.serve.django_process import DjangoProcess

    serving.serve(Console(), DjangoProcess((sys.executable, __file__, "prepare")))


def prepare(descriptor: int) -> None:
    """Run the supervisor's process with Django."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "lightcone_site.settings"
    import django

    django.setup()
    from lightcone_site.serve import preparation

    specify = preparation.model_spec

    def model_spec(choice):
        spec = specify(choice)
        marker = spec.command.index("lightcone_site.worker")
        return dataclasses.replace(spec, command=(sys.executable, __file__, "worker", *spec.command[marker + 1 :]))

    preparation.model_spec = model_spec
    preparation.answer_requests(descriptor)


def worker(arguments: list[str]) -> None:
    """Run the Celery worker of a model with a scripted core."""
    import lightcone_site.worker as site
    from chat.workers import model as module
    from engine.core.link import ProcessLink
    from engine.engine import Engine

    def connect(config):
        return ProcessLink(config, (__file__, "core"))

    module.ModelWorker = functools.partial(module.ModelWorker, make_engine=functools.partial(Engine, connect=connect))
    site.main(arguments)


def core(descriptor: int) -> None:
    """Send one token per sequence and step until the link closes. LIGHTCONE_BENCH_STEP_MS is the length of a step."""
    from engine.core.link import PipeChannel, unpack_config
    from engine.messages import (
        AbortSequences,
        AddSequence,
        CoreReady,
        CoreStats,
        Heartbeat,
        QueryStats,
        SequenceOutput,
        Shutdown,
        StepResult,
    )

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = Connection(descriptor)
    unpack_config(connection.recv_bytes())
    channel = PipeChannel(connection, on_closed=lambda: os._exit(0))
    channel.send(CoreReady(49152, 8192, 65536))
    step_s = float(os.environ["LIGHTCONE_BENCH_STEP_MS"]) / 1000

    def beat() -> None:
        while True:
            channel.send(Heartbeat())
            time.sleep(1.0)

    threading.Thread(target=beat, daemon=True).start()
    left: dict[int, int] = {}
    fresh: set[int] = set()
    while True:
        for message in channel.receive(block=not left):
            if isinstance(message, AddSequence):
                left[message.seq_id] = message.max_tokens
                fresh.add(message.seq_id)
            elif isinstance(message, AbortSequences):
                gone = [seq_id for seq_id in message.seq_ids if left.pop(seq_id, None)]
                channel.send(StepResult([SequenceOutput(seq_id, [], finish="aborted") for seq_id in gone]))
            elif isinstance(message, QueryStats):
                channel.send(CoreStats(len(left), 0, 60000, 65536, 0, 0, 0, 0))
            elif isinstance(message, Shutdown):
                return
        outputs = []
        now = time.time()
        for seq_id, count in list(left.items()):
            finish = "length" if count == 1 else None
            is_first = seq_id in fresh
            token = 1000 + (7 * count + seq_id) % 20000
            outputs.append(
                SequenceOutput(
                    seq_id,
                    [token],
                    finish=finish,
                    num_cached=0 if is_first else None,
                    started_at=now if is_first else None,
                )
            )
            if finish:
                del left[seq_id]
            else:
                left[seq_id] = count - 1
        fresh.clear()
        if outputs:
            channel.send(StepResult(outputs))
            time.sleep(step_s)


# The measurement


def stream(installation: Installation, tokens: int, requests: int, counts: list[int], start: threading.Barrier) -> None:
    """Send requests one after the other; count tokens by the server's own usage."""
    body = {
        "messages": [{"role": "user", "content": "Tell a long tale."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", installation.port, timeout=300)
    start.wait()
    for _ in range(requests):
        headers = {"Authorization": f"Bearer {installation.key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        text = connection.getresponse().read()
        if b"[DONE]" not in text:
            raise SystemExit(f"a stream did not end: {text[-400:]!r}")
        last = text.rpartition(b"data: {")[2].partition(b"\n")[0]
        counts.append(json.loads(b"{" + last)["usage"]["completion_tokens"])
    connection.close()


def warm_up(installation: Installation) -> None:
    """Send first requests, which load modules and open connections."""
    for _ in range(4):
        stream(installation, 8, 1, [], threading.Barrier(1))


def measure(installation: Installation, streams: int, tokens: int, requests: int) -> dict[str, Any]:
    counts: list[int] = []
    start = threading.Barrier(streams + 1)
    threads = [
        threading.Thread(target=stream, args=(installation, tokens, requests, counts, start)) for _ in range(streams)
    ]
    for thread in threads:
        thread.start()
    pids = {part: ids for part, ids in installation.processes().items() if part in MEASURED}
    before = {part: processor_us(ids) for part, ids in pids.items()}
    began = time.perf_counter()
    start.wait()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - began
    spent = {part: processor_us(ids) - before[part] for part, ids in pids.items()}
    total = sum(counts)
    time.sleep(1.5)  # the usage writer
    with sqlite3.connect(f"file:{installation.database}?mode=ro", uri=True) as connection:
        rows = connection.execute(
            "select queue_ms from chat_requestlog where queue_ms is not null order by run_id desc limit ?",
            (len(counts),),
        )
        waits = [row[0] for row in rows]
    per_token = {part: round(us / total) for part, us in sorted(spent.items())}
    platform = sum(us for part, us in spent.items() if part != "core")
    line: dict[str, Any] = {
        "streams": streams,
        "tokens": total,
        "us_per_token": per_token,
        "platform_us": round(platform / total),
    }
    line |= {
        "tokens_per_web_s": round(total / (spent["web"] / 1e6)),
        "tokens_per_worker_s": round(total / (spent["worker"] / 1e6)),
    }
    line |= {
        "to_first_step_p50_ms": round(statistics.median(waits), 1) if waits else None,
        "wall_tokens_per_s": round(total / wall),
    }
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="1,16,64")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--model", default="")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--hold", action="store_true")
    options = parser.parse_args()
    settings = {"LIGHTCONE_BENCH_STEP_MS": str(options.step_ms)} | (
        {"LIGHTCONE_MODEL": options.model} if options.model else {}
    )
    command = ("manage.py", "serve") if options.real else SCRIPTED
    with serving(command, settings) as installation:
        warm_up(installation)
        if options.hold:
            print(installation.processes(), flush=True)
            input()
        for streams in map(int, options.streams.split(",")):
            print(json.dumps(measure(installation, streams, options.tokens, options.requests)), flush=True)


if __name__ == "__main__":
    role = sys.argv[1] if len(sys.argv) > 1 else ""
    if role == "serve":
        serve()
    elif role == "prepare":
        prepare(int(sys.argv[2]))
    elif role == "worker":
        worker(sys.argv[2:])
    elif role == "core":
        core(int(sys.argv[2]))
    else:
        main()
