"""A LoRA adapter over HTTP: added while its model serves, named by requests, permitted by its name, removed."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.engine.lora import adapter_of, greedy_tokens, merged, write_adapter
from tests.engine.real_engine import write_model
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]
PROMPT = [5, 9, 12, 7, 20]


@pytest.fixture(scope="module")
def model_and_adapter(tmp_path_factory: pytest.TempPathFactory):
    """Return the folder of a model, transformers' model, the folder of an adapter and the merged model."""
    folder, adapter = tmp_path_factory.mktemp("base"), tmp_path_factory.mktemp("adapter")
    model = write_model(folder)
    config, tensors = adapter_of(model, seed=1)
    write_adapter(adapter, config, tensors)
    return folder, model, adapter, merged(model, config, tensors)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, model_and_adapter):
    environment = {
        "LIGHTCONE_MODEL": str(model_and_adapter[0]),
        "LIGHTCONE_MODEL_NAME": "tiny",
        "LIGHTCONE_WEIGHTS": "float32",
    }
    served = ServedLightcone(tmp_path_factory.mktemp("served"), environment, model="tiny")
    with served.running():
        yield served


def tokens(served: ServedLightcone, model: str, key: str | None = None) -> httpx.Response:
    body = {"model": model, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "return_token_ids": True}
    headers = {"Authorization": f"Bearer {key or served.api_key}"}
    return httpx.post(f"{served.api_url}/completions", json=body | {"ignore_eos": True}, headers=headers, timeout=60)


def test_an_adapter_serves_beside_its_model_and_goes_again(served: ServedLightcone, model_and_adapter) -> None:
    _, model, adapter, changed = model_and_adapter
    manager = {"Authorization": f"Bearer {served.make_key(rights=['inference', 'models_manage'])}"}
    place = f"{served.api_url}/admin/adapters/tiny:one"
    assert tokens(served, "tiny:one").status_code == 404
    added = httpx.put(place, json={"path": str(adapter)}, headers=manager)
    assert added.status_code == 200, added.text
    served.wait_for(lambda: tokens(served, "tiny:one").status_code == 200, timeout_s=30, what="the adapter")
    answer = tokens(served, "tiny:one").json()
    assert answer["model"] == "tiny:one"
    assert answer["choices"][0]["token_ids"] == greedy_tokens(changed, PROMPT, 8)
    assert tokens(served, "tiny").json()["choices"][0]["token_ids"] == greedy_tokens(model, PROMPT, 8)

    of_model, of_adapter = served.make_key(model_names=["tiny"]), served.make_key(model_names=["tiny:one"])
    assert [tokens(served, name, of_model).status_code for name in ("tiny", "tiny:one")] == [200, 404]
    assert [tokens(served, name, of_adapter).status_code for name in ("tiny", "tiny:one")] == [404, 200]
    listed = httpx.get(f"{served.api_url}/models", headers={"Authorization": f"Bearer {served.api_key}"}).json()
    assert {"tiny", "tiny:one"} <= {one["id"] for one in listed["data"]}

    assert httpx.delete(place, headers=manager).status_code == 200
    assert tokens(served, "tiny:one").status_code == 404
    assert tokens(served, "tiny").status_code == 200


def test_a_folder_that_is_no_adapter_of_the_model_is_refused_by_the_request(
    served: ServedLightcone, tmp_path: Path
) -> None:
    manager = {"Authorization": f"Bearer {served.make_key(rights=['inference', 'models_manage'])}"}
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).write_text("{}")
    place = f"{served.api_url}/admin/adapters/tiny:torn"
    assert httpx.put(place, json={"path": str(tmp_path)}, headers=manager).status_code == 200
    served.wait_for(lambda: "tiny:torn is not served" in served.logs(), timeout_s=30, what="the refusal")
    answer = tokens(served, "tiny:torn")
    assert answer.status_code == 400
    assert "torn" in answer.json()["error"]["message"]
