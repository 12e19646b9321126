"""The engine core and the model worker are killed under four streams: no token is lost or repeated.

In float32 greedy tokens do not depend on other requests, so that the texts equal those of an undisturbed run.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.chaos.inspection import engine_stats, pid_of, request_log
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

PROMPTS = [
    "Tell me of the sea.",
    "Count slowly from one to fifty.",
    "Why is the sky blue?",
    "Write a letter to a friend about gardens.",
]
NUM_TOKENS = 48
LEAD = 6
"""Pieces of text that a stream has got before the next one starts."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    served = ServedLightcone(
        tmp_path_factory.mktemp("kills"), {"LIGHTCONE_WEIGHTS": "float32", "LIGHTCONE_KV_CACHE_BYTES": str(2**27)}
    )
    with served.running():
        yield served
    assert served.processes_left() == []


class Stream:
    """One greedy stream, read in its own thread.

    `has_lead` is set after LEAD pieces of text, `has_begun` after the first.
    """

    def __init__(self, served: ServedLightcone, prompt: str, name: str) -> None:
        self._served, self._prompt, self._name = served, prompt, name
        self.has_begun, self.has_lead = threading.Event(), threading.Event()
        self.num_pieces = 0

    def read(self) -> tuple[str, str, int]:
        """Return text, finish reason and completion tokens."""
        text, reasons, usage = [], [], []
        with openai.OpenAI(
            api_key=self._served.api_key, base_url=self._served.api_url, max_retries=0, timeout=60
        ) as client:
            chunks = client.chat.completions.create(
                model=self._served.model,
                messages=[{"role": "user", "content": self._prompt}],
                temperature=0,
                max_tokens=NUM_TOKENS,
                stream=True,
                stream_options={"include_usage": True},
                extra_headers={"X-Request-Id": self._name},
            )
            for chunk in chunks:
                usage += [chunk.usage.completion_tokens] if chunk.usage else []
                for choice in chunk.choices:
                    reasons += [choice.finish_reason] if choice.finish_reason else []
                    if choice.delta.content:
                        text.append(choice.delta.content)
                        self.num_pieces = len(text)
                        self.has_begun.set()
                        if len(text) >= LEAD:
                            self.has_lead.set()
        [reason], [num_tokens] = reasons, usage
        return "".join(text), reason, num_tokens


@pytest.fixture(scope="module")
def undisturbed(served: ServedLightcone) -> list[tuple[str, str, int]]:
    answers = [Stream(served, prompt, f"calm-{index}").read() for index, prompt in enumerate(PROMPTS)]
    assert all(num_tokens > 4 * LEAD for _, _, num_tokens in answers), "too short to be killed at four places"
    return answers


@pytest.mark.parametrize(("process", "attempts"), [("core", 1), ("worker", 2)])
def test_streams_continue_at_their_position(
    served: ServedLightcone, undisturbed: list[tuple[str, str, int]], process: str, attempts: int
) -> None:
    victim = pid_of(served, process)
    assert victim is not None
    streams = [Stream(served, prompt, f"{process}-{index}") for index, prompt in enumerate(PROMPTS)]
    with ThreadPoolExecutor(len(streams)) as pool:
        answers = []
        for stream in streams:
            answers.append(pool.submit(stream.read))
            assert (stream.has_begun if stream is streams[-1] else stream.has_lead).wait(30)
        os.kill(victim, signal.SIGKILL)
        standing = [stream.num_pieces for stream in streams]
        assert [answer.result(60) for answer in answers] == undisturbed
    assert len(set(standing)) == len(standing), f"the streams stood at the same token: {standing}"

    names = {f"{process}-{index}" for index in range(len(PROMPTS))}
    served.wait_for(lambda: len(_rows(served, names)) == len(names), timeout_s=10, what="a row for each stream")
    assert {(row["outcome"], row["attempts"]) for row in _rows(served, names)} == {("finished", attempts)}
    stats = engine_stats(served)
    assert (stats["core"]["integrity"], stats["core"]["num_free_blocks"]) == ("", stats["core"]["num_blocks"])


def _rows(served: ServedLightcone, names: set[str]) -> list[dict[str, object]]:
    return [row for row in request_log(served) if row["client_request_id"] in names]
