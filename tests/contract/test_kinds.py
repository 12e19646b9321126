"""A served embedding model and a served reranker, over HTTP: their own routes, and refusals of the others."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import openai
import pytest
import torch
from torch.nn.functional import normalize

from tests.engine.encoder_folders import encoded, states_of, write_encoder, write_modules
from tests.served import ServedLightcone

pytestmark = pytest.mark.live

TEXTS = ["the sea is deep", "stone", "The wind on the shore."]
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def served(folder: Path, model: Path, name: str) -> ServedLightcone:
    environment = {"LIGHTCONE_MODEL": str(model), "LIGHTCONE_MODEL_NAME": name, "LIGHTCONE_NUM_THREADS": "1"}
    return ServedLightcone(folder, environment, model=name)


def post(server, path, body):
    status, _, answer = server.post(path, body)
    return status, json.loads(answer)


@pytest.fixture(scope="module")
def embedding(tmp_path_factory):
    """Return a served embedding model, its folder and transformers' model."""
    folder = tmp_path_factory.mktemp("bert")
    model = write_encoder(folder, "Bert")
    write_modules(folder, "Pooling", "Normalize", Pooling={"pooling_mode": "cls"})
    with served(tmp_path_factory.mktemp("embedding"), folder, "tiny-bert").running() as server:
        yield server, folder, model


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    """Return a served reranker, its folder and transformers' model."""
    folder = tmp_path_factory.mktemp("scorer")
    model = write_encoder(folder, "Bert", "ForSequenceClassification", num_labels=1)
    with served(tmp_path_factory.mktemp("reranker"), folder, "tiny-reranker").running() as server:
        yield server, folder, model


def test_vectors_of_an_embedding_model_are_those_of_transformers(embedding):
    server, folder, model = embedding
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


def test_an_embedding_model_neither_chats_nor_ranks_and_says_who_could(embedding):
    server, _, _ = embedding
    for path, body in (
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/rerank", {"query": "sea", "documents": ["deep"]}),
    ):
        status, answer = post(server, path, body)
        assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "invalid_value", "model"), path
        assert "'tiny-bert' is an embedding model, which answers /v1/embeddings" in answer["error"]["message"]
        assert answer["error"]["message"].endswith("No served model that you may use does this.")
    (model,) = json.loads(server.get("/v1/models")[2])["data"]
    assert (model["kind"], model["max_model_len"]) == ("embedding", 130)


def test_rankings_have_the_scores_of_transformers_in_both_shapes(reranker):
    server, folder, model = reranker
    with torch.inference_mode():
        logits = [model(**encoded(folder, "is the sea deep?", text)).logits.item() for text in TEXTS]
    expected = torch.tensor(logits).sigmoid().tolist()
    best_first = sorted(range(len(TEXTS)), key=lambda index: -expected[index])
    body = {"query": "is the sea deep?", "documents": [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]]}
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


def test_a_reranker_refuses_long_pairs_by_their_place_and_what_is_not_ranking(reranker):
    server, _, _ = reranker
    long = {"query": "sea", "documents": ["deep", "stone " * 3000]}
    status, answer = post(server, "/v1/rerank", long)
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "documents.1")
    assert "max_tokens_per_doc" in error["message"]
    assert post(server, "/v1/rerank", {**long, "max_tokens_per_doc": 20})[0] == 200
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/embeddings", {"input": "sea"})):
        status, answer = post(server, path, body)
        assert (status, answer["error"]["param"]) == (400, "model"), path
    (model,) = json.loads(server.get("/v1/models")[2])["data"]
    assert model["kind"] == "reranker"
