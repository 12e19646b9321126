"""A served Lightcone with comparable answers, shared by tests of parameters, refusals and dialects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from chat.catalog.model_choice import model_choice
from tests.served import ServedLightcone

INVARIANT = {
    # Answers are compared between requests: with and without a cached prefix, alone and beside others.
    "LIGHTCONE_BATCH_INVARIANT": "1",
    # Four running sequences, so that a request of four choices keeps the others waiting.
    "LIGHTCONE_MAX_NUM_SEQS": "4",
    "LIGHTCONE_MAX_MODEL_LEN": "2048",
    # A stream's status line comes with its first byte, which is a ping for requests that wait.
    "LIGHTCONE_SSE_KEEP_ALIVE": "1",
    # On a busy machine several threads cost more than this small model gains.
    "LIGHTCONE_NUM_THREADS": "1",
    "LIGHTCONE_MAX_AUTH_FAILURES": "1000000",
}


def model_that_adds_bos(folder: Path) -> Path:
    """Copy the default model with a tokenizer that adds a BOS, as the original's never does."""
    content = bytearray(model_choice(path="", name="").path.read_bytes())
    name = b"tokenizer.ggml.add_bos_token"
    flag = content.index(name) + len(name) + 4
    assert content[flag] == 0
    content[flag] = 1
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


def invariant_server(folder: Path, **environment: str) -> ServedLightcone:
    served = ServedLightcone(folder)
    model = {"LIGHTCONE_MODEL": str(model_that_adds_bos(folder)), "LIGHTCONE_MODEL_NAME": served.model}
    served.environment = INVARIANT | model | environment
    return served


@pytest.fixture(scope="session")
def invariant_lightcone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    """`manage.py serve` with `INVARIANT`, one for the whole run. Tests must leave it as they found it."""
    served = invariant_server(tmp_path_factory.mktemp("invariant"))
    with served.running():
        yield served


@contextmanager
def browser_of(lightcone: ServedLightcone) -> Iterator[httpx.Client]:
    """A client with the session of a signed-in administrator, which sends the token against forged requests."""
    with httpx.Client(base_url=lightcone.base_url, headers={"Origin": lightcone.base_url}) as client:
        client.get("/sign-in").raise_for_status()
        form = {"username": lightcone.admin_user, "password": lightcone.admin_password}
        client.post("/sign-in", data=form | {"csrfmiddlewaretoken": client.cookies["lightcone_csrf"]})
        client.headers["X-CSRFToken"] = client.cookies["lightcone_csrf"]
        yield client


@pytest.fixture(scope="module")
def browser(lightcone: ServedLightcone) -> Iterator[httpx.Client]:
    with browser_of(lightcone) as client:
        yield client
