"""The cost of the platform around the core, against its targets: processor share, memory, overhead, tokens.

    python benchmarks/platform_targets.py [--model PATH] [--only share,memory,overhead,tokens]
        [--requests 100] [--tokens 128]

  share      processor time of web, worker, helpers and Valkey per second of the core's, at 32 streams of 128 prompt
             words, two answers each
  memory     PSS of every process in the middle of that load
  overhead   from the client's first byte to the core's first step, of lone requests on a warm server, a pause between
             two
  tokens     at 64 streams, with a scripted core that is never in the way (relay.py): tokens per second of the web
             process's time

Everything is as served. A busy machine disturbs the overhead, and processor times less. Linux only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sqlite3
import statistics
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.installation import Installation, processor_us, serving  # noqa: E402
from benchmarks.relay import SCRIPTED  # noqa: E402
from benchmarks.relay import measure as relay_measure  # noqa: E402
from benchmarks.relay import warm_up as relay_warm_up  # noqa: E402

PLATFORM = ("web", "worker", "helpers", "valkey")
TARGETS = {
    "share": "at most 0.15, aim 0.08",
    "memory": "at most 1.5 GiB, aim 1.0",
    "overhead": "p50 at most 8 ms, aim 4",
    "tokens": "at least 6000, aim 9000",
}
STREAMS = 32
PROMPT_WORDS = 128
WORDS = "river stone cloud bread night music paper garden winter metal ocean story window forest engine coffee".split()
MIB = 1 << 20


def answer(installation: Installation, tokens: int, name: str, connection: http.client.HTTPConnection) -> float:
    """Read one streamed answer to its end; return the time (unix) of its request."""
    draw = random.Random(name)
    body = {
        "messages": [{"role": "user", "content": " ".join(draw.choice(WORDS) for _ in range(PROMPT_WORDS))}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }
    headers = {"Authorization": f"Bearer {installation.key}", "Content-Type": "application/json", "X-Request-Id": name}
    data = json.dumps(body)
    sent_at = time.time()
    connection.request("POST", "/v1/chat/completions", data, headers)
    text = connection.getresponse().read()
    if b"[DONE]" not in text:
        raise SystemExit(f"a stream did not end: {text[-400:]!r}")
    return sent_at


def share_and_memory(installation: Installation, tokens: int) -> dict[str, dict[str, object]]:
    """Start all streams at once, two answers each; measure memory after the first half of them."""
    half = threading.Barrier(STREAMS + 1)

    def stream(index: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", installation.port, timeout=600)
        try:
            answer(installation, tokens, f"share-{index}-0", connection)
            half.wait()
            answer(installation, tokens, f"share-{index}-1", connection)
        except (SystemExit, OSError):
            half.abort()  # no wait for an answer that does not come
            raise
        finally:
            connection.close()

    threads = [threading.Thread(target=stream, args=(index,)) for index in range(STREAMS)]
    pids = installation.processes()
    before = {part: processor_us(ids) for part, ids in pids.items()}
    for thread in threads:
        thread.start()
    half.wait()
    time.sleep(2.0)  # well into the second round
    memory = installation.memory_bytes()
    for thread in threads:
        thread.join()
    spent = {part: processor_us(ids) - before[part] for part, ids in pids.items()}
    num_tokens = 2 * STREAMS * tokens
    platform = sum(spent.get(part, 0.0) for part in PLATFORM)
    total = sum(map(sum, memory.values()))
    return {
        "share": {
            "value": round(platform / spent["core"], 4),
            "us_per_token": {part: round(us / num_tokens) for part, us in sorted(spent.items())},
        },
        "memory": {
            "value": round(total / (1 << 30), 3),
            "mib": {part: [round(size / MIB) for size in sizes] for part, sizes in sorted(memory.items())},
        },
    }


def overhead(installation: Installation, requests: int) -> dict[str, object]:
    sent = {}
    connection = http.client.HTTPConnection("127.0.0.1", installation.port, timeout=60)
    for index in range(requests):
        name = f"overhead-{index}"
        sent[name] = answer(installation, 4, name, connection)
        time.sleep(0.05)
    connection.close()
    time.sleep(1.5)  # the usage writer
    with sqlite3.connect(f"file:{installation.database}?mode=ro", uri=True) as database:
        rows = database.execute(
            "select client_request_id, arrived_at, queue_ms from chat_requestlog "
            "where client_request_id like 'overhead-%'"
        ).fetchall()
    took_ms = sorted((_unix(arrived_at) - sent[name]) * 1000 + queue_ms for name, arrived_at, queue_ms in rows)
    in_log_ms = statistics.median(queue_ms for _, _, queue_ms in rows)
    p50, p95 = statistics.median(took_ms), took_ms[int(len(took_ms) * 0.95)]
    return {
        "value": round(p50, 1),
        "p95": round(p95, 1),
        "from_the_view_p50": round(in_log_ms, 1),
        "requests": len(rows),
    }


def _unix(text: str) -> float:
    """Return the unix time of a time as SQLite keeps it, in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def show(name: str, figure: dict[str, object]) -> None:
    print(json.dumps({"figure": name, **figure, "target": TARGETS[name]}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="")
    parser.add_argument("--only", default=",".join(TARGETS))
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    wanted = set(options.only.split(","))
    settings = {"LIGHTCONE_MODEL": options.model} if options.model else {}
    if wanted - {"tokens"}:
        with serving(settings=settings) as installation:
            relay_warm_up(installation)
            if wanted & {"share", "memory"}:
                for name, figure in share_and_memory(installation, options.tokens).items():
                    show(name, figure)
            if "overhead" in wanted:
                show("overhead", overhead(installation, options.requests))
    if "tokens" in wanted:
        with serving(SCRIPTED, settings | {"LIGHTCONE_BENCH_STEP_MS": "0"}) as installation:
            relay_warm_up(installation)
            line = relay_measure(installation, 64, 256, 2)
            show("tokens", {"value": line["tokens_per_web_s"], **line})


if __name__ == "__main__":
    main()
