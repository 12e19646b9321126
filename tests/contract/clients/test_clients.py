"""Each published client drives a served Lightcone from its own environment. `make contract` installs and runs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract import media_models
from tests.contract.clients import agent_model
from tests.contract.clients.catalogue import CLIENTS, Client
from tests.contract.clients.environments import AGENT_TIMEOUT_S, PLACE, Environment
from tests.contract.clients.table import results_write
from tests.served import ServedLightcone

# The group of the served Lightcone, which tests ask for by name.
pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.contract, pytest.mark.xdist_group("lightcone")]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Yield a dict for the features of each client's script.

    With LIGHTCONE_TEST_WRITE_TABLE=1 it becomes the table of the documentation.
    """
    seen: dict[str, list[dict[str, Any]]] = {}
    yield seen
    if os.environ.get("LIGHTCONE_TEST_WRITE_TABLE") == "1":
        results_write(seen)


@pytest.fixture(scope="module")
def agents_lightcone(tmp_path_factory) -> Iterator[ServedLightcone]:
    """`manage.py serve` with the model that agents need."""
    environment = {
        "LIGHTCONE_MODEL": str(agent_model.path(PLACE / "models")),
        "LIGHTCONE_MODEL_NAME": agent_model.NAME,
        "LIGHTCONE_REQUEST_TIMEOUT": f"{AGENT_TIMEOUT_S:.0f}",
    }
    served = ServedLightcone(tmp_path_factory.mktemp("agents"), environment, model=agent_model.NAME)
    with served.running():
        yield served


@pytest.fixture(scope="module")
def media_lightcone(tmp_path_factory) -> Iterator[ServedLightcone]:
    """`manage.py serve` with a model that sees, whose sound another one writes down."""
    with media_models.served(tmp_path_factory.mktemp("media"), "llava", hearing="llava") as made:
        yield made


def _served(client: Client) -> str:
    if client.sends_media:
        return "media_lightcone"
    return "agents_lightcone" if client.needs_agent_model else "lightcone"


def _marks(client: Client) -> list[pytest.MarkDecorator]:
    """Return the marks of a client: those for Node.js are not in `.ci/run`, and agents take minutes."""
    node = [pytest.mark.node] if client.is_node else []
    return [*node, pytest.mark.timeout(AGENT_TIMEOUT_S + 300)] if client.needs_agent_model else node


@pytest.mark.parametrize("client", [pytest.param(client, marks=_marks(client), id=client.name) for client in CLIENTS])
def test_every_feature_of_the_client_works(client: Client, outcomes, request, tmp_path):
    environment = Environment(client)
    if not environment.is_ready():
        pytest.skip(environment.missing() or f"{client.name} is not installed (make contract)")
    if client.needs_agent_model and not agent_model.path(PLACE / "models").is_file():
        pytest.skip("the model of agents is not there (make contract)")
    lightcone = request.getfixturevalue(_served(client))
    if client.sends_media:
        media_models.files_write(tmp_path)
    api_key = lightcone.make_key(rights=["inference", *client.rights]) if client.rights else lightcone.api_key
    lines = environment.run(base_url=lightcone.base_url, api_key=api_key, model=lightcone.model, scratch=tmp_path)
    outcomes[client.name] = lines
    assert [line["feature"] for line in lines] == client.features
    failed = [f"{line['feature']}: {line['why']}" for line in lines if not line["passed"] and not line["is_impossible"]]
    assert not failed, "\n".join(failed)
