"""An agent's hour: first tokens of a conversation that grows, and of another user's chats beside it, over HTTP.

    python benchmarks/agent.py [--model FILE] [--start 1500] [--end 4500] [--turns 8] [--others 6000] [--cache-mib 200]
        [--spill-mib 0]
    python benchmarks/agent.py --model FILE --start 10000 --end 25000 --turns 40 --others 40000 --cache-mib 2000

Serves an installation whose cache has `--cache-mib`; with `--spill-mib` there is a spill file of that size in its data
directory, which is among the temporary files (TMPDIR). The conversation has about `--start` tokens at its first turn,
and `--end` at its last. Before each turn but the first, the other user, of another project, sends chats of about
`--chat-tokens`, one after another, that have `--others` tokens together. Prints when the first token came, and how much
of the prompt was in the cache or the file. The defaults suit the default model, whose context is 8,192 tokens. Linux
only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.installation import serving  # noqa: E402
from benchmarks.serving import VOCABULARY  # noqa: E402
from benchmarks.witness import witness_key  # noqa: E402

ANSWER_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """`first_token_s` from the send on; tokens of the prompt."""

    text: str
    first_token_s: float
    num_prompt: int
    num_cached: int


class User:
    """A client with a key, whose words no other user sends."""

    def __init__(self, client: httpx.Client, key: str, seed: int) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {key}"}
        self._random = random.Random(seed)
        sample = " ".join(VOCABULARY)
        counted = client.post("/tokenize", json={"prompt": sample}, headers=self._headers).raise_for_status().json()
        self._tokens_per_word = counted["count"] / len(VOCABULARY)

    def words(self, num_tokens: int) -> str:
        """Return words of about so many tokens."""
        return " ".join(self._random.choices(VOCABULARY, k=max(1, round(num_tokens / self._tokens_per_word))))

    def ask(self, messages: list[dict[str, str]]) -> Answer:
        body = {
            "model": "model",
            "messages": messages,
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        text, first, usage = "", 0.0, {}
        sent = time.perf_counter()
        with self._client.stream("POST", "/v1/chat/completions", json=body, headers=self._headers) as response:
            if response.status_code != 200:
                raise SystemExit(f"{response.status_code} {response.read()[:300]!r}")
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line[6:])
                usage = chunk.get("usage") or usage
                if chunk.get("choices") and (content := chunk["choices"][0]["delta"].get("content")):
                    first = first or time.perf_counter() - sent
                    text += content
        return Answer(text, first, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"])


def converse(agent: User, other: User, options: argparse.Namespace) -> None:
    """Hold the conversation, with the other user's chats between its turns, and print a line a turn."""
    growth = (options.end - options.start) / max(1, options.turns - 1)
    messages = [{"role": "user", "content": agent.words(options.start)}]
    turns, chats = list[Answer](), list[Answer]()
    print(
        "turn   tokens   cached   first token   first tokens of the chats before, median and worst   load", flush=True
    )
    for number in range(options.turns):
        between = list[Answer]()
        while number and sum(chat.num_prompt for chat in between) < options.others:
            between.append(other.ask([{"role": "user", "content": other.words(options.chat_tokens)}]))
        answer = agent.ask(messages)
        turns.append(answer)
        chats += between
        messages += [
            {"role": "assistant", "content": answer.text},
            {"role": "user", "content": agent.words(growth - ANSWER_TOKENS)},
        ]
        waits = _spread([chat.first_token_s for chat in between])
        print(
            f"{number + 1:4} {answer.num_prompt:8} {answer.num_cached:8} {answer.first_token_s:11.2f} s"
            f"   {waits:48}   {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    print(f"turns from the second on: {_spread([turn.first_token_s for turn in turns[1:]])}, ", end="")
    print(f"{_share_cached(turns[1:]):.0%} of their prompts cached")
    print(f"chats: {_spread([chat.first_token_s for chat in chats])}, {_share_cached(chats):.0%} cached")


def _spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s, {max(seconds):.2f} s" if seconds else ""


def _share_cached(answers: list[Answer]) -> float:
    return sum(answer.num_cached for answer in answers) / max(1, sum(answer.num_prompt for answer in answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a GGUF file or a folder; the default model when absent")
    parser.add_argument("--start", type=int, default=1500)
    parser.add_argument("--end", type=int, default=4500)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--others", type=int, default=6000)
    parser.add_argument("--chat-tokens", type=int, default=600)
    parser.add_argument("--cache-mib", type=int, default=200)
    parser.add_argument("--spill-mib", type=int, default=0)
    options = parser.parse_args()
    settings = {
        "LIGHTCONE_MODEL_NAME": "model",
        "LIGHTCONE_KV_CACHE_BYTES": str(options.cache_mib << 20),
        "LIGHTCONE_KV_SPILL_BYTES": str(options.spill_mib << 20),
    }
    if options.model:
        settings["LIGHTCONE_MODEL"] = options.model
    with (
        serving(settings=settings) as installation,
        httpx.Client(base_url=f"http://127.0.0.1:{installation.port}", timeout=600) as client,
    ):
        key = witness_key(installation)
        converse(User(client, installation.key, 1), User(client, key, 2), options)


if __name__ == "__main__":
    main()
