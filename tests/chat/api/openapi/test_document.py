"""The OpenAPI document covers every field, route and answer; its page obeys the content policy."""

import json
import re

import httpx
import pytest
from django.urls import URLResolver, resolve
from jsonschema import Draft202012Validator

from chat.api.chat_format.answer import ChatAnswer
from chat.api.chat_format.stream import ChatStream
from chat.api.dialect import AnswerHead
from chat.api.openapi.describe import routes
from chat.api.openapi.document import operations
from chat.api.openapi.notation import components
from chat.api.request.schema import ChatCompletionRequest
from chat.catalog.services import model_register, models_cache_clear
from chat.urls import urlpatterns
from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    Event,
    FinishReason,
    Outcome,
    PromptScored,
    RankedLogprob,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    TopLogprob,
    Usage,
)
from tests.chat.api.openapi.test_pages import EXAMPLE, PAGE

VIEWS = ("chat.api.view", "chat.api.model_lists")
ENTRY = TokenLogprob(5, -0.5, "a", b"a", (TopLogprob(5, -0.5, "a", b"a"),))
EVENTS = [
    Admitted(3, 9, 1, (1, 2, 3), "<prompt>"),
    PromptScored(((), (RankedLogprob(2, -1.0, 1, "b"),))),
    Delta(0, (5,), "", (ENTRY,), reasoning="so"),
    Delta(0, (6,), "text", (ENTRY,)),
    Delta(0, (7,), tool_calls=(ToolCallDelta(0, "call", "f", "{"),)),
    Delta(1, (), ""),
    ChoiceFinished(0, FinishReason.TOOL_CALLS, 7, tool_calls=(ToolCallDelta(0, arguments="}"),)),
    ChoiceFinished(1, FinishReason.STOP, "end", text="."),
    Completed(Outcome.FINISHED, Usage(3, 1, 3), Timings(0.0)),
]


def head(*, is_function_form: bool, service_tier: str | None = "flex") -> AnswerHead:
    return AnswerHead(
        request_id="r",
        created=1,
        model="m",
        fingerprint="fp",
        role="assistant",
        num_choices=2,
        has_logprobs=True,
        include_usage=True,
        continuous_usage=is_function_form,
        service_tier=service_tier,
        num_prompt_tokens=3,
        prompt_ids=(1, 2, 3),
        prompt_text="<prompt>",
        returns_token_ids=True,
        answers_function_call=is_function_form,
    )


def complete(value):
    """Return the same schema with additional properties forbidden."""
    if isinstance(value, list):
        return [complete(item) for item in value]
    if not isinstance(value, dict):
        return value
    closed = {name: complete(item) for name, item in value.items()}
    return closed | {"additionalProperties": False} if isinstance(value.get("properties"), dict) else closed


def validator(components, name, *, is_complete: bool = True) -> Draft202012Validator:
    described = complete(components) if is_complete else components
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": described})


@pytest.mark.parametrize("is_function_form", [False, True])
def test_an_answer_matches_its_description_exactly(components, is_function_form):
    answer = ChatAnswer(head(is_function_form=is_function_form))
    for payload in EVENTS:
        answer.feed(Event(0, 1, payload))
    validator(components, "ChatCompletion").validate(json.loads(answer.body()))


@pytest.mark.parametrize("is_function_form", [False, True])
def test_chunks_match_their_description_exactly(components, is_function_form):
    stream = ChatStream(head(is_function_form=is_function_form))
    frames = b"".join(stream.feed(Event(0, 1, payload)) for payload in EVENTS).decode()
    chunks = [json.loads(line[6:]) for line in frames.splitlines() if line.startswith("data: {")]
    assert len(chunks) > 8
    for chunk in chunks:
        validator(components, "ChatCompletionChunk").validate(chunk)


def test_the_examples_of_the_page_fit_the_described_request(components):
    described = validator(components, "ChatCompletionRequest", is_complete=False)
    for example in EXAMPLE.findall(PAGE):
        described.validate({"messages": [{"role": "user", "content": "hi"}]} | json.loads(example))


def test_every_route_that_takes_json_has_an_example_that_fits_and_is_small(document):
    """The page offered a body with every field at once, which the server refused."""
    posts = [methods["post"] for methods in document["paths"].values() if "post" in methods]
    bodies = {post["operationId"]: post["requestBody"]["content"] for post in posts if "requestBody" in post}
    described = {name: content["application/json"] for name, content in bodies.items() if "application/json" in content}
    assert len(described) >= 14
    for body in described.values():
        schema = {**body["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(body["example"])
        assert 0 < len(json.dumps(body["example"])) < 200


@pytest.fixture
async def pages():
    from lightcone_site.asgi import http

    async with httpx.AsyncClient(transport=httpx.ASGITransport(http), base_url="http://localhost") as client:
        yield client


async def test_every_request_field_is_in_the_document(pages):
    document = (await pages.get("/api/schema")).json()
    schema = document["components"]["schemas"]["ChatCompletionRequest"]
    assert list(schema["properties"]) == list(ChatCompletionRequest().fields)
    assert schema["properties"]["temperature"]["maximum"] == 2
    assert schema["required"] == ["messages"]
    operation = document["paths"]["/v1/chat/completions"]["post"]
    assert set(operation["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert "429" in operation["responses"]


def test_components_are_read_from_a_short_notation():
    text = """
        word = 'plain' | 'loud' | null
        base = {id: string "A number."}
        Echo = {...base; words: [word]; other, note?: Word | null; counts: {*: integer} | null; size?: integer | string}
    """
    assert components(text) == {
        "Echo": {
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "A number."},
                "words": {"type": "array", "items": {"type": ["string", "null"], "enum": ["plain", "loud", None]}},
                "other": {"oneOf": [{"$ref": "#/components/schemas/Word"}, {"type": "null"}]},
                "note": {"oneOf": [{"$ref": "#/components/schemas/Word"}, {"type": "null"}]},
                "counts": {"type": ["object", "null"], "additionalProperties": {"type": "integer"}},
                "size": {"type": ["integer", "string"]},
            },
            "required": ["id", "words", "other", "counts"],
        }
    }
    with pytest.raises(ValueError, match="expected : before"):
        components("Echo = {id string}")
    with pytest.raises(ValueError, match="not of the notation: -"):
        components("Echo = {id: date-time}")


def test_routes_are_read_from_a_short_notation():
    text = """
        GET /v9/echo/{echo_id} retrieve_echo(limit) -> Echo raises 404
            One echo. As it was
            sent.
    """
    [(route, operation)] = routes("echo", text, query='limit: integer "At most."').items()
    assert route == "GET /v9/echo/{echo_id}"
    assert [operation["summary"], operation["description"]] == ["One echo", "As it was sent."]
    assert operation["parameters"] == [
        {"in": "path", "name": "echo_id", "required": True, "schema": {"type": "string"}},
        {"in": "query", "name": "limit", "schema": {"type": "integer"}, "description": "At most."},
    ]
    assert list(operation["responses"]) == ["200", "404"]
    with pytest.raises(ValueError, match="not the description"):
        routes("echo", "GET /v9/echo")


def test_every_described_route_is_served():
    for route in operations():
        path = re.sub(r"{[^}]+}", "a", route.partition(" ")[2])
        assert resolve(path).func.__module__ in VIEWS, path


def test_every_served_route_of_the_api_is_described():
    """One description covers a route with and without /v1."""
    paths = {re.sub(r"{[^}]+}", "a", route.partition(" ")[2]).strip("/") for route in operations()}
    api = [pattern for pattern in flattened(urlpatterns) if pattern.callback.__module__ in VIEWS and pattern.name]
    assert len(api) >= 25
    assert [pattern.name for pattern in api if not any(pattern.pattern.match(path) for path in paths)] == []


def flattened(patterns):
    for pattern in patterns:
        yield from flattened(pattern.url_patterns) if isinstance(pattern, URLResolver) else [pattern]


async def test_the_document_is_read_only(pages):
    assert (await pages.post("/api/schema")).status_code == 405
    assert (await pages.get("/api/schema")).headers["content-disposition"] == 'inline; filename="Lightcone.json"'


def test_routes_are_grouped_by_purpose(document):
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    groups = "chat models prompts audio messages responses scale ollama health files batches models_manage organization"
    assert {tag for operation in operations for tag in operation["tags"]} == set(groups.split())


def test_every_reference_leads_to_a_schema(document):
    names = set(document["components"]["schemas"])
    assert set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document))) <= names


async def test_the_page_has_no_inline_script_and_a_strict_policy(pages):
    response = await pages.get("/docs")
    assert response.status_code == 200
    assert re.findall(r"<script(?![^>]* src=)", response.text) == []
    policy = response.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.django_db
def test_the_page_names_the_default_model_to_signed_in_users(client, admin_client):
    model_register(name="acme/<small>", path="/models/small.gguf")
    models_cache_clear()
    assert 'data-model=""' in client.get("/docs").text
    assert 'data-model="acme/&lt;small&gt;"' in admin_client.get("/docs").text
