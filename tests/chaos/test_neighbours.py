"""Floods of one project beside a witness of another, which gets its answers.

Limits are ten times the measured values.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import openai
import pytest

from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

FIRST_TOKEN_S = 15.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    served = ServedLightcone(tmp_path_factory.mktemp("neighbours"), {"LIGHTCONE_KV_CACHE_BYTES": str(240 << 20)})
    with served.running():
        yield served


@pytest.fixture(scope="module")
def witness(served: ServedLightcone) -> Iterator[openai.OpenAI]:
    """A client of another project."""
    with openai.OpenAI(
        api_key=served.make_key(project="witness"), base_url=served.api_url, max_retries=0, timeout=120
    ) as client:
        yield client


@contextmanager
def beside(served: ServedLightcone, count: int, **body: object) -> Iterator[None]:
    """Run streams of the first project until the end; entered when one of them has begun."""
    is_over, has_begun = threading.Event(), threading.Event()

    def attack(number: int) -> None:
        messages = [{"role": "user", "content": f"{number}. Tell me of the sea."}]
        with openai.OpenAI(api_key=served.api_key, base_url=served.api_url, max_retries=0, timeout=120) as client:
            for _ in client.chat.completions.create(
                model=served.model, messages=messages, stream=True, extra_body={**body, "ignore_eos": True}
            ):
                has_begun.set()
                if is_over.is_set():
                    return

    with ThreadPoolExecutor(count) as pool:
        attacks = [pool.submit(attack, number) for number in range(count)]
        try:
            assert has_begun.wait(60)
            yield
        finally:
            is_over.set()
    for done in attacks:
        done.result()


def first_token_s(witness: openai.OpenAI, model: str) -> float:
    start = time.monotonic()
    chunks = witness.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Why is the sky blue?"}], max_tokens=8, stream=True
    )
    taken = [time.monotonic() - start for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    return taken[0]


@pytest.mark.parametrize(
    ("count", "body"), [(1, {"n": 128, "max_tokens": 2048}), (50, {"max_tokens": 1500})], ids=["choices", "runs"]
)
def test_another_project_gets_its_first_token_beside_one_that_fills_batch_and_cache(
    served: ServedLightcone, witness: openai.OpenAI, count: int, body: dict[str, int]
) -> None:
    """The first token took 45 s beside 128 choices of one request, and 92 s beside fifty long runs."""
    with beside(served, count, **body):
        for _ in range(5):
            assert first_token_s(witness, served.model) < FIRST_TOKEN_S
            time.sleep(2.0)
