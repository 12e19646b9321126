"""The table of clients in the documentation matches the results of the scripts."""

from __future__ import annotations

import pytest

from tests.contract.clients.catalogue import CLIENTS, Client
from tests.contract.clients.table import GROUPS, PAGE, page, results_read


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_the_results_are_of_this_version_and_of_these_features(client: Client):
    result = results_read()[client.name]
    assert result["version"] == client.version, "run `make contract`"
    assert list(result["features"]) == client.features, "run `make contract`"


def test_the_page_is_made_of_the_results():
    results = results_read()
    assert list(results) == [client.name for client in CLIENTS]
    assert PAGE.read_text() == page(results), "run `make contract`"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_feature_has_a_column_and_a_name_of_its_own(client: Client):
    assert {name.split(":")[0] for name in client.features} <= set(GROUPS)
    assert len(set(client.features)) == len(client.features)


@pytest.mark.parametrize("client", [client for client in CLIENTS if not client.is_node], ids=lambda client: client.name)
def test_every_package_of_an_environment_is_pinned(client: Client):
    lines = (client.folder / client.pins).read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert all("==" in line for line in wanted), wanted
    assert not any(line.startswith(("torch=", "nvidia-")) for line in wanted)
