"""Rankings: a run for each document, results best first, in the shapes of Jina and Cohere."""

import json

import pytest

from chat.api.openai.rerank import COHERE, JINA, RerankRequest
from chat.catalog import named_models
from chat.errors import ApiError
from chat.relay.state.workers import ModelCondition
from engine.api import Admitted, ErrorCode, RawPrompt, RequestError, Scored, Task
from tests.chat.api.conftest import MODEL, completed
from tests.chat.api.openapi.test_document import validator

BODY = {"query": "How deep?", "documents": ["a", {"text": "b", "title": "t"}, "c"]}
SCORES = {"a": 0.25, "b": 0.75, "c": 0.25}


@pytest.fixture
def ranking(scripted, monkeypatch):
    """Let each run score its document by SCORES, with three tokens."""
    start = scripted.start

    async def scored(*, request, **others):
        scripted.script = [Admitted(3, 0, 1), Scored(SCORES[request.raw.document]), completed(3, 0, 0)]
        return await start(request=request, **others)

    monkeypatch.setattr("chat.api.answering.pipeline.completion_start", scored)
    return scripted


async def rank(api, path="/v1/rerank", **fields):
    response = await api.post(path, json=BODY | fields)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v1/rerank/"])
async def test_the_answer_in_jinas_shape_has_the_best_documents_first(api, ranking, path, components):
    body = await rank(api, path)
    results = [(1, 0.75, "b"), (0, 0.25, "a"), (2, 0.25, "c")]
    assert body.pop("id").startswith("rerank-")
    assert body == {
        "model": "org/tiny",
        "results": [
            {"index": index, "relevance_score": score, "document": {"text": text}} for index, score, text in results
        ],
        "usage": {"prompt_tokens": 9, "total_tokens": 9},
    }
    validator(components, "Ranking").validate(body | {"id": "rerank-x"})
    assert ranking.further == [False, True, True]
    assert {request.task for request in ranking.requests} == {Task.SCORE}
    assert ranking.requests[1].raw == RawPrompt("How deep?", document="b", param="documents.1")


async def test_the_answer_in_coheres_shape_has_no_documents_and_counts_units(api, ranking, components):
    body = await rank(api, "/v2/rerank", top_n=2, max_tokens_per_doc=7, user="u")
    assert body.pop("id").startswith("rerank-")
    assert body == {
        "results": [{"index": 1, "relevance_score": 0.75}, {"index": 0, "relevance_score": 0.25}],
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": 9},
        },
    }
    validator(components, "CohereRanking").validate(body | {"id": "rerank-x"})
    assert {request.raw.max_document_tokens for request in ranking.requests} == {7}
    assert ranking.traces[0].user_label == "u"


@pytest.mark.parametrize(("path", "wanted"), [("/v1/rerank", False), ("/v2/rerank", True)])
async def test_a_request_says_whether_results_hold_their_documents(api, ranking, path, wanted):
    results = (await rank(api, path, return_documents=wanted))["results"]
    assert [("document" in result) for result in results] == [wanted] * 3


async def test_a_pair_that_is_too_long_refuses_the_request_by_its_place(api, scripted):
    message = "documents.2 is too long: with the query it has at least 600 tokens, and org/tiny takes 512"
    scripted.script = [RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, "documents.2", limit=512)]
    response = await api.post("/v1/rerank", json=BODY)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "documents.2")


@pytest.mark.parametrize("has_one", [True, False])
async def test_a_model_of_another_kind_is_refused_with_the_names_of_those_that_could(
    api, scripted, monkeypatch, has_one
):
    async def live():
        return {MODEL.name: ModelCondition("ready", kind="reranker" if has_one else "chat")}

    monkeypatch.setattr(named_models, "models_live", live)
    message = "model must name a reranker here: 'x' is a chat model, which answers /v1/chat/completions"
    scripted.script = [RequestError(ErrorCode.INVALID_VALUE, message, "model")]
    response = await api.post("/v1/rerank", json=BODY)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_value", "model")
    hint = "You can use: org/tiny." if has_one else "No served model that you may use does this."
    assert error["message"] == f"{message}. {hint}"


def test_the_example_of_the_routes_is_accepted(document):
    for path in ("/v1/rerank", "/v2/rerank"):
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        JINA.parse(json.loads(json.dumps(content["example"])))


GOOD = {"query": "q", "documents": ["a"]}
BAD = [
    ({"documents": ["a"]}, "missing_required_parameter", "query"),
    ({"query": "q"}, "missing_required_parameter", "documents"),
    (GOOD | {"query": "  "}, "invalid_value", "query"),
    (GOOD | {"query": ["q"]}, "invalid_type", "query"),
    (GOOD | {"documents": []}, "invalid_value", "documents"),
    (GOOD | {"documents": "a"}, "invalid_type", "documents"),
    (GOOD | {"documents": ["a", ""]}, "invalid_value", "documents.1"),
    (GOOD | {"documents": ["a", {"text": " "}]}, "invalid_value", "documents.1"),
    (GOOD | {"documents": [{"title": "a"}]}, "invalid_type", "documents.0"),
    (GOOD | {"documents": [1]}, "invalid_type", "documents.0"),
    (GOOD | {"documents": ["a"] * 2049}, "invalid_value", "documents"),
    (GOOD | {"top_n": 0}, "invalid_value", "top_n"),
    (GOOD | {"return_documents": "often"}, "invalid_type", "return_documents"),
    (GOOD | {"max_tokens_per_doc": 0}, "invalid_value", "max_tokens_per_doc"),
    (GOOD | {"max_chunks_per_doc": 3}, "unsupported_parameter", "max_chunks_per_doc"),
    (GOOD | {"rank_fields": ["title"]}, "unsupported_parameter", "rank_fields"),
]


@pytest.mark.parametrize(("body", "code", "param"), BAD, ids=str)
@pytest.mark.parametrize("dialect", [JINA, COHERE])
def test_an_invalid_request_is_refused_with_its_field(dialect, body, code, param):
    with pytest.raises(ApiError) as refused:
        dialect.parse(body)
    assert (refused.value.code, refused.value.param) == (code, param)


def test_unknown_fields_are_passed_over_and_named():
    assert JINA.parse(GOOD | {"truncation": True}).delivery.ignored == ("truncation",)
    assert "truncation" not in RerankRequest().fields
