"""Each published client drives a served Lightcone from an environment of its own. `make contract` installs those and runs these tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.clients.catalogue import CLIENTS, Client
from tests.contract.clients.environments import Environment
from tests.contract.clients.table import results_write

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.contract]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, list[dict[str, Any]]]]:
    """By client, what its script printed. Becomes the table of the documents where LIGHTCONE_TEST_WRITE_TABLE=1 asks for it."""
    seen: dict[str, list[dict[str, Any]]] = {}
    yield seen
    if os.environ.get("LIGHTCONE_TEST_WRITE_TABLE") == "1":
        results_write(seen)


@pytest.mark.parametrize(
    "client", [pytest.param(client, marks=[pytest.mark.node] if client.is_node else [], id=client.name) for client in CLIENTS]
)
def test_every_feature_of_the_client_works(client: Client, outcomes, request, tmp_path):
    environment = Environment(client)
    if not environment.is_ready():
        pytest.skip(environment.missing() or f"{client.name} is not installed (make contract)")
    lightcone = request.getfixturevalue("lightcone")
    lines = environment.run(base_url=lightcone.base_url, api_key=lightcone.api_key, model=lightcone.model, scratch=tmp_path)
    outcomes[client.name] = lines
    assert [line["feature"] for line in lines] == client.features
    failed = [f"{line['feature']}: {line['why']}" for line in lines if not line["passed"] and not line["is_impossible"]]
    assert not failed, "\n".join(failed)
