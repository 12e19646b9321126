"""Changes of what is served: rights, further names, created models, removal, and pulls from a hub of our own."""

import asyncio
import threading
from functools import partial

import pytest

from chat.api.ollama import management, pulling, views
from chat.catalog import named_models
from chat.catalog.services import models_cache_clear
from chat.model_store import pulling as store_pulling
from chat.relay.state.workers import ModelCondition
from tests.chat.api.ollama.conftest import WEIGHTS, rows_read
from tests.chat.api.ollama.shapes import lines

TINY = "org/Tiny-GGUF"
FILE = bytes(range(256)) * 1024
STORED = "Tiny:Q4_K_M"


@pytest.fixture
def tiny(local_hub, monkeypatch):
    local_hub.repositories[TINY] = {
        "Tiny-Q4_K_M.gguf": FILE,
        "Tiny-Q8_0.gguf": FILE * 2,
        "bad-Q2_K.gguf": b"not a model",
    }
    monkeypatch.setattr(store_pulling, "Hub", partial(store_pulling.Hub, endpoint=local_hub.url))
    monkeypatch.setattr(pulling, "SAY_EVERY_S", 0.0)
    return local_hub


CHANGES = [
    ("POST", "pull", {"model": TINY}),
    ("POST", "create", {"model": "x", "from": "base"}),
    ("POST", "copy", {"source": "base", "destination": "x"}),
    ("DELETE", "delete", {"model": "gpt"}),
]


@pytest.mark.parametrize(("method", "route", "body"), CHANGES)
async def test_changes_need_a_right(installed, method, route, body):
    response = await installed.api.request(method, f"/api/{route}", json=body, headers=installed.user)
    assert (response.status_code, response.json()["code"]) == (403, "permission_denied")
    assert "Manage models" in response.json()["error"]
    assert await installed.names() == ["base", "gpt"]


async def test_a_copy_is_a_further_name(installed):
    response = await installed.post("copy", source="gpt:latest", destination="gpt-4")
    assert (response.status_code, response.content) == (200, b"")
    assert await installed.names() == ["base", "gpt", "gpt-4"]
    assert (await installed.post("copy", source="base", destination="gpt-4")).status_code == 200
    assert (await installed.delete("gpt-4")).status_code == 200
    assert await installed.names() == ["base", "gpt"]
    assert installed.store.names() == ["base"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"source": "none", "destination": "x"}, 404, "model"),
        ({"source": "base"}, 400, "destination"),
        ({"source": "base", "destination": " "}, 400, "destination"),
        ({"source": "base", "destination": 5}, 400, "destination"),
    ],
)
async def test_bad_copies_are_refused(installed, body, status, param):
    response = await installed.post("copy", **body)
    assert (response.status_code, response.json()["param"]) == (status, param)


async def test_a_created_model_has_values_of_its_own(installed):
    parameters = {"temperature": 0.1, "num_predict": 9, "repeat_penalty": 1.1, "num_ctx": 2048, "num_gpu": 1}
    fields = {"from": "gpt", "parameters": parameters, "system": "Be calm."}
    response = await installed.post("create", model="calm", **fields)
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.headers["x-lightcone-ignored"] == "parameters.num_gpu"
    *_, last = lines(response.text)
    assert last == {"status": "success"}
    model = (await rows_read())["calm"]
    assert model.sampling_defaults == {"temperature": 0.1, "max_completion_tokens": 9, "repetition_penalty": 1.1}
    assert model.path == str(installed.store.model_path("base"))
    shown = (await installed.post("show", model="calm")).json()
    assert "PARAMETER temperature 0.1\n" in shown["modelfile"]
    assert shown["modelfile"].endswith('SYSTEM """Be calm."""\n')
    assert (shown["system"], model.max_model_len) == ("Be calm.", 2048)
    assert (await installed.post("create", model="calm", **{"from": "base"}, stream=False)).json() == last
    assert (await rows_read())["calm"].sampling_defaults == {}


async def test_a_created_model_may_have_a_jinja_template_of_its_own(installed):
    template = "{% for message in messages %}{{ message.content }}{% endfor %}{{ eos_token }}"
    assert (await installed.post("create", model="calm", template=template, **{"from": "base"})).status_code == 200
    assert (await rows_read())["calm"].chat_template == template
    assert (await installed.post("show", model="calm")).json()["template"] == template


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"template": "{{ if .System }}{{ .System }}{{ end }}"}, "template"),
        ({"template": "{{- range .Messages }}x{{ end }}"}, "template"),
        ({"system": 5}, "system"),
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"messages": [{"role": "user", "content": "x"}]}, "messages"),
        ({"files": {"a.gguf": "sha256:0"}}, "files"),
        ({"adapters": {"a.gguf": "sha256:0"}}, "adapters"),
        ({"license": "MIT"}, "license"),
        ({"quantize": "q4_K_M"}, "quantize"),
        ({"modelfile": "FROM base"}, "modelfile"),
        ({"parameters": {"stop": ["x"]}}, "parameters.stop"),
        ({"parameters": {"seed": 1}}, "parameters.seed"),
        ({"parameters": {"temperature": 9}}, "parameters.temperature"),
        ({"parameters": {"repeat_penalty": 0}}, "parameters.repeat_penalty"),
        ({"parameters": {"typical_p": 0.5}}, "parameters.typical_p"),
        ({"model": "gpt"}, "model"),
        ({"model": "base"}, "model"),
        ({"model": None}, "model"),
        ({"from": None}, "from"),
    ],
)
async def test_what_a_created_model_cannot_have_is_refused_by_name(installed, fields, param):
    response = await installed.post("create", **{"model": "calm", "from": "base", **fields})
    assert (response.status_code, response.json()["param"]) == (400, param)
    assert response.json()["error"].startswith(f"{param} ")
    assert list(await rows_read()) == ["base"]


async def test_a_context_beyond_that_of_the_model_cannot_be_created(installed):
    installed.conditions["base"] = ModelCondition("ready", max_model_len=2048)
    body = {"model": "x", "from": "base", "parameters": {"num_ctx": 4096}}
    assert (await installed.post("create", **body)).json()["param"] == "parameters.num_ctx"


async def test_files_stay_until_the_last_model_that_has_them_is_deleted(installed):
    await installed.post("create", model="calm", **{"from": "base"})
    refused = await installed.delete("base")
    assert (refused.status_code, "further names: gpt" in refused.json()["error"]) == (400, True)
    for name in ("gpt", "base"):
        assert (await installed.delete(name)).status_code == 200
    assert (await installed.names(), installed.store.names()) == (["calm"], ["base"])
    response = await installed.api.request("DELETE", "/api/delete", json={"name": "calm:latest"})
    assert (response.status_code, response.content) == (200, b"")
    assert (await installed.names(), installed.store.names()) == ([], [])


async def test_a_model_whose_files_are_gone_is_deleted(installed):
    await installed.delete("gpt")
    installed.store.remove("base")
    assert (await installed.delete("base")).status_code == 200
    assert await installed.names() == []


async def test_a_file_outside_the_store_is_never_removed(installed, tmp_path):
    file = tmp_path / "mine.gguf"
    file.write_bytes(WEIGHTS)
    model = (await rows_read())["base"]
    model.path, model.aliases = str(file), []
    await model.asave()
    models_cache_clear()
    assert (await installed.delete("base")).status_code == 200
    assert file.exists()
    assert installed.store.names() == ["base"]


async def test_the_model_of_the_settings_and_an_unknown_one_are_not_deleted(installed, settings):
    settings.LIGHTCONE_MODEL = "base"
    response = await installed.delete("base")
    assert (response.status_code, response.json()["param"]) == (400, "model")
    assert "LIGHTCONE_MODEL" in response.json()["error"]
    assert (await installed.delete("none")).status_code == 404
    assert await installed.names() == ["base", "gpt"]


@pytest.mark.parametrize("route", ["chat", "generate"])
@pytest.mark.parametrize("no_time", [0, "0", "0s", 0.0])
async def test_no_time_to_live_unloads_a_model(installed, monkeypatch, route, no_time):
    asked = []

    async def send(name):
        asked.append(name)

    monkeypatch.setattr(views, "unload_send_async", send)
    body = {"model": "gpt:latest", "keep_alive": no_time}
    answer = await installed.post(route, **body)
    assert (answer.json()["done_reason"], answer.json()["model"], asked) == ("unload", "base", ["base"])
    assert "x-lightcone-ignored" not in answer.headers
    refused = await installed.api.post(f"/api/{route}", json=body, headers=installed.user)
    assert (refused.status_code, refused.json()["code"], asked) == (403, "permission_denied", ["base"])


async def test_workers_that_cannot_be_reached_unload_nothing(installed, monkeypatch):
    async def send(name):
        raise TimeoutError

    monkeypatch.setattr(views, "unload_send_async", send)
    answer = await installed.post("generate", model="base", keep_alive=0)
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")


@pytest.mark.parametrize("name", [f"{TINY}:Q4_K_M", f"hf.co/{TINY}:q4_k_m", f"huggingface.co/{TINY}", f"{TINY}:latest"])
async def test_a_pull_says_how_far_it_is_and_serves_the_name_that_was_asked_for(installed, tiny, name):
    response = await installed.post("pull", model=name)
    assert response.headers["content-type"] == "application/x-ndjson"
    first, *between, last = lines(response.text)
    assert (first, last) == ({"status": "pulling manifest"}, {"status": "success"})
    layers = [update for update in between if "digest" in update]
    assert {update["total"] for update in layers} == {len(FILE)}
    assert [update["completed"] for update in layers] == sorted(update["completed"] for update in layers)
    assert layers[-1]["completed"] == len(FILE)
    assert layers[0]["status"] == f"pulling {layers[0]['digest'].removeprefix('sha256:')[:12]}"
    assert (await rows_read())[name].path == str(installed.store.model_path(STORED))
    assert name in await installed.names()
    tiny.requests.clear()
    again = await installed.post("pull", name=name, stream=False)
    assert (again.json(), tiny.requests) == ({"status": "success"}, [])


async def test_a_stored_model_is_not_fetched_again_under_another_name(installed, tiny):
    await installed.post("pull", model=f"{TINY}:Q4_K_M", stream=False)
    tiny.requests.clear()
    assert (await installed.post("pull", model=f"hf.co/{TINY}", stream=False)).json() == {"status": "success"}
    assert tiny.requests == []


@pytest.mark.parametrize("name", ["llama3.2", "a/b/c", "hf.co/x", "/x", "x/"])
async def test_a_name_that_is_no_repository_is_refused(installed, name):
    response = await installed.post("pull", model=name)
    assert (response.status_code, response.json()["param"]) == (400, "model")
    assert "OWNER/NAME" in response.json()["error"]


@pytest.mark.parametrize("name", ["org/None", f"{TINY}:Q3_K_M", f"{TINY}:Q2_K"])
async def test_a_pull_that_fails_ends_with_its_error(installed, tiny, name):
    response = await installed.post("pull", model=name)
    assert response.status_code == 200
    *_, last = lines(response.text)
    assert last["error"].startswith("model could not be pulled: ")
    whole = await installed.post("pull", model=name, stream=False)
    assert (whole.status_code, whole.json()["error"]) == (400, last["error"])
    assert list(await rows_read()) == ["base"]


async def test_a_client_that_leaves_stops_its_pull_and_the_next_one_goes_on(installed, tiny):
    pull = pulling.Pull(pulling.asked_read(f"{TINY}:Q4_K_M"))
    pull.leave()  # long before the first piece of the file is there
    await asyncio.to_thread(pull.thread.join, 30)
    assert (installed.store.names(), installed.store.unfinished()) == (["base"], [STORED])
    assert list(await rows_read()) == ["base"]
    assert (await installed.post("pull", model=f"{TINY}:Q4_K_M", stream=False)).json() == {"status": "success"}


async def test_more_pulls_than_a_process_takes_are_refused(installed, tiny, monkeypatch):
    monkeypatch.setattr(pulling, "_places", threading.BoundedSemaphore(1))
    assert pulling._places.acquire()
    response = await installed.post("pull", model=TINY)
    assert (response.status_code, response.json()["code"]) == (503, "overloaded")


async def test_a_new_model_is_announced_once_a_worker_knows_it(installed, tiny, monkeypatch):
    """A client that asked the model at once was told that no worker serves it."""
    monkeypatch.setattr(management, "LOOK_S", 0.0)
    looks = []

    async def live():
        looks.append(len(looks))
        conditions = {"base": ModelCondition("ready")}
        return conditions if len(looks) < 3 else conditions | {TINY: ModelCondition(), "calm": ModelCondition()}

    monkeypatch.setattr(named_models, "models_live", live)
    assert (await installed.post("pull", model=TINY, stream=False)).json() == {"status": "success"}
    assert len(looks) == 3
    del looks[:]
    await installed.post("create", model="calm", **{"from": "base"})
    assert len(looks) >= 3
