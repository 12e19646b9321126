"""Load a chat-completions server with streaming requests and print one line per workload.

    python benchmarks/serving.py --base http://127.0.0.1:8000/v1 --model NAME --key KEY [W1 W8 W32 WP WS WC]

Works against any OpenAI-compatible server on the loopback interface; peers.py starts servers and compares them. Token
counts are the server's own `usage`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import time
from dataclasses import dataclass, field

import httpx

VOCABULARY = (
    "amber anchor autumn basket beacon branch bridge candle canyon castle circle copper cotton desert dragon engine "
    "falcon forest garden harbor hollow island jacket kernel ladder lantern marble meadow mirror needle ocean orchard "
    "palace pebble pepper planet prairie quarry ribbon river saddle shadow signal silver spiral spring stable summit "
    "temple thunder timber tunnel valley velvet village violet walnut window winter"
).split()

REPORT = (
    "On Monday the {} met in the old {} to talk about the repair of the {}. Anna Keller, who had drawn the first "
    "plans, explained why the northern {} could not carry lorries any longer, and showed photographs of the {}. The "
    "mayor asked what a new {} would cost. Anna said that nobody could know before the winter, because the {} had to "
    "be tested first. In the end they agreed to close the {} to all heavy traffic, "
    "and to put up signs on both banks of the {}."
)


@dataclass(frozen=True, slots=True)
class Workload:
    """`prompt_words`, of which all requests share `shared_words`. `copies`: they fill gaps of a text to repeat."""

    concurrency: int
    requests: int
    prompt_words: int
    max_tokens: int
    shared_words: int = 0
    copies: bool = False


WORKLOADS = {
    "W1": Workload(concurrency=1, requests=8, prompt_words=128, max_tokens=128),
    "W8": Workload(concurrency=8, requests=24, prompt_words=128, max_tokens=128),
    "W32": Workload(concurrency=32, requests=64, prompt_words=128, max_tokens=128),
    "WP": Workload(concurrency=1, requests=8, prompt_words=1500, max_tokens=8),
    "WS": Workload(concurrency=8, requests=24, prompt_words=640, max_tokens=32, shared_words=600),
    "WC": Workload(concurrency=1, requests=8, prompt_words=9, max_tokens=112, copies=True),
    "L1": Workload(concurrency=1, requests=4, prompt_words=128, max_tokens=48),
    "L8": Workload(concurrency=8, requests=8, prompt_words=128, max_tokens=48),
}
SMALL = ("W1", "W8", "W32", "WP", "WS", "WC")
"""Workloads for small models; the others are for models of a few gigabytes."""


@dataclass(frozen=True, slots=True)
class Server:
    """The target of requests: address up to `/v1`, name of the model, key or nothing."""

    base: str
    model: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of a workload: seconds, and tokens per second over all its requests."""

    wall_s: float
    tokens_per_s: float
    first_token_p50_s: float | None
    first_token_p95_s: float | None
    gap_p50_s: float | None
    errors: list[str]


@dataclass(slots=True)
class Tally:
    """The measurements of one workload's requests, in seconds."""

    first_token: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    num_tokens: int = 0
    errors: list[str] = field(default_factory=list)


def messages(workload: Workload, run: int, index: int) -> list[dict[str, str]]:
    """Return messages of words that no earlier run or request has sent, after the shared ones."""
    common, own = random.Random(run), random.Random(f"{run}/{index}")
    words = [common.choice(VOCABULARY) for _ in range(workload.shared_words)]
    words += [own.choice(VOCABULARY) for _ in range(workload.prompt_words - workload.shared_words)]
    if not workload.copies:
        return [{"role": "user", "content": "Tell a long tale in which these words occur: " + " ".join(words)}]
    text = REPORT.format(*words)
    again = {"role": "user", "content": "Repeat it once more, word for word."}
    return [
        {"role": "user", "content": f"Repeat this text word for word:\n\n{text}"},
        {"role": "assistant", "content": text},
        again,
    ]


async def request(
    client: httpx.AsyncClient, server: Server, workload: Workload, turns: list[dict[str, str]], tally: Tally
) -> None:
    """Send one request and count its chunks."""
    body = {
        "model": server.model,
        "messages": turns,
        "max_tokens": workload.max_tokens,
        "temperature": 0,
        "ignore_eos": not workload.copies,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    start = time.perf_counter()
    last = None
    async with client.stream("POST", f"{server.base}/chat/completions", json=body) as response:
        if response.status_code != 200:
            tally.errors.append(f"{response.status_code} {(await response.aread())[:200]!r}")
            return
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if chunk.get("error"):
                tally.errors.append(str(chunk["error"])[:200])
            if chunk.get("usage"):
                tally.num_tokens += chunk["usage"]["completion_tokens"]
            if chunk.get("choices") and chunk["choices"][0].get("delta", {}).get("content"):
                now = time.perf_counter()
                if last is None:
                    tally.first_token.append(now - start)
                else:
                    tally.gaps.append(now - last)
                last = now


async def measure(server: Server, workload: Workload) -> Figures:
    """Run one workload: its requests, `concurrency` at a time."""
    tally, run, pending = Tally(), time.time_ns(), iter(range(workload.requests))
    headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}

    async def stream() -> None:
        for index in pending:
            turns = messages(workload, run, index)
            try:
                await request(client, server, workload, turns, tally)
            except (
                httpx.RemoteProtocolError
            ):  # the server, such as llama.cpp's, has just closed this kept-alive connection: retry once
                await request(client, server, workload, turns, tally)

    async with httpx.AsyncClient(timeout=600, headers=headers) as client:
        start = time.perf_counter()
        await asyncio.gather(*(stream() for _ in range(workload.concurrency)))
        wall = time.perf_counter() - start
    return Figures(
        round(wall, 2),
        round(tally.num_tokens / wall, 1),
        quantile(tally.first_token, 0.5),
        quantile(tally.first_token, 0.95),
        quantile(tally.gaps, 0.5),
        tally.errors[:3],
    )


def quantile(values: list[float], share: float) -> float | None:
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 4) if values else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help=f"any of {', '.join(WORKLOADS)}; {', '.join(SMALL)} when absent")
    parser.add_argument("--base", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    server = Server(options.base.rstrip("/"), options.model, options.key)
    for name in options.workloads or SMALL:
        print(
            json.dumps({"workload": name, **dataclasses.asdict(asyncio.run(measure(server, WORKLOADS[name])))}),
            flush=True,
        )


if __name__ == "__main__":
    main()
