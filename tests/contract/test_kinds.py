"""A served embedding model and a served reranker, over HTTP: their own routes, and refusals of the others."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys

import openai
import pytest
import torch
from torch.nn.functional import normalize

from tests.engine.encoder_folders import encoded, states_of, write_encoder, write_modules
from tests.served import ROOT, ServedLightcone

pytestmark = pytest.mark.live

TEXTS = ["the sea is deep", "stone", "The wind on the shore."]
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def post(server, path, body):
    status, _, answer = server.ask("POST", path, json.dumps(body), timeout_s=120.0)
    return status, json.loads(answer)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    """Return the folder of an embedding model and transformers' model."""
    folder = tmp_path_factory.mktemp("bert")
    model = write_encoder(folder, "Bert")
    write_modules(folder, "Pooling", "Normalize", Pooling={"pooling_mode": "cls"})
    return folder, model


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    """Return the folder of a reranker and transformers' model."""
    folder = tmp_path_factory.mktemp("scorer")
    return folder, write_encoder(folder, "Bert", "ForSequenceClassification", num_labels=1)


@pytest.fixture(scope="module")
def server(tmp_path_factory, embedder, reranker):
    """Serve both. The reranker is not loaded before it is asked for."""
    served = ServedLightcone(tmp_path_factory.mktemp("kinds"), model="tiny-bert")
    first = {"LIGHTCONE_MODEL": str(embedder[0]), "LIGHTCONE_MODEL_NAME": "tiny-bert", "LIGHTCONE_NUM_THREADS": "1"}
    served.environment = first
    with served.running():
        environment = served.environment_of_all | {"DJANGO_SETTINGS_MODULE": "lightcone_site.settings"}
        command = [sys.executable, "manage.py", "model_add", "tiny-reranker", str(reranker[0])]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=60, capture_output=True)
        wanted = {"tiny-bert": "embedding", "tiny-reranker": "reranker"}
        served.wait_for(lambda: kinds(served) == wanted, timeout_s=60, what="the kinds of both models to be known")
        yield served


def kinds(server):
    return {model["id"]: model["kind"] for model in json.loads(server.get("/v1/models")[2])["data"]}


def test_vectors_of_an_embedding_model_are_those_of_transformers(server, embedder):
    folder, model = embedder
    expected = [normalize(states_of(model, folder, text)[0], dim=0) for text in TEXTS]
    with openai.OpenAI(api_key=server.api_key, base_url=server.api_url, max_retries=0) as client:
        answer = client.embeddings.create(model="tiny-bert", input=TEXTS)
    for item, wanted in zip(answer.data, expected, strict=True):
        torch.testing.assert_close(torch.tensor(item.embedding), wanted, atol=1e-5, rtol=0)
    assert answer.usage.prompt_tokens == sum(encoded(folder, text)["input_ids"].shape[1] for text in TEXTS)
    body = {"input": TEXTS[0], "encoding_format": "base64", "dimensions": 4}
    status, written = post(server, "/v1/embeddings", body)
    vector = struct.unpack("<4f", base64.b64decode(written["data"][0]["embedding"]))
    assert status == 200
    torch.testing.assert_close(torch.tensor(vector), normalize(expected[0][:4], dim=0), atol=1e-5, rtol=0)


def test_an_embedding_model_neither_chats_nor_ranks_and_says_who_could(server):
    nobody = "No served model that you may use does this."
    for path, body, hint in (
        ("/v1/chat/completions", CHAT, nobody),
        ("/v1/completions", {"prompt": "hi"}, nobody),
        ("/v1/rerank", {"query": "sea", "documents": ["deep"]}, "You can use: tiny-reranker."),
    ):
        status, answer = post(server, path, body)
        assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "invalid_value", "model"), path
        assert "'tiny-bert' is an embedding model, which answers /v1/embeddings" in answer["error"]["message"]
        assert answer["error"]["message"].endswith(hint)


def test_rankings_have_the_scores_of_transformers_in_both_shapes(server, reranker):
    folder, model = reranker
    with torch.inference_mode():
        logits = [model(**encoded(folder, "is the sea deep?", text)).logits.item() for text in TEXTS]
    expected = torch.tensor(logits).sigmoid().tolist()
    best_first = sorted(range(len(TEXTS)), key=lambda index: -expected[index])
    body = {
        "model": "tiny-reranker",
        "query": "is the sea deep?",
        "documents": [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]],
    }
    _, jina = post(server, "/v1/rerank", body)
    _, cohere = post(server, "/v2/rerank", {**body, "top_n": 2})
    assert [result["index"] for result in jina["results"]] == best_first
    assert [result["index"] for result in cohere["results"]] == best_first[:2]
    for result in (*jina["results"], *cohere["results"]):
        assert result["relevance_score"] == pytest.approx(expected[result["index"]], abs=1e-5)
    assert [result["document"]["text"] for result in jina["results"]] == [TEXTS[index] for index in best_first]
    num_tokens = sum(encoded(folder, "is the sea deep?", text)["input_ids"].shape[1] for text in TEXTS)
    assert jina["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert cohere["meta"]["tokens"] == {"input_tokens": num_tokens}


def test_a_reranker_refuses_long_pairs_by_their_place_and_what_is_not_ranking(server):
    long = {"model": "tiny-reranker", "query": "sea", "documents": ["deep", "stone " * 3000]}
    status, answer = post(server, "/v1/rerank", long)
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "documents.1")
    assert "max_tokens_per_doc" in error["message"]
    assert post(server, "/v1/rerank", {**long, "max_tokens_per_doc": 20})[0] == 200
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/embeddings", {"input": "sea"})):
        status, answer = post(server, path, {"model": "tiny-reranker", **body})
        assert (status, answer["error"]["param"]) == (400, "model"), path
    assert answer["error"]["message"].endswith("You can use: tiny-bert.")
