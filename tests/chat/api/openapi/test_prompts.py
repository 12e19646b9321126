"""The OpenAPI schemas of text completions match answers, chunks and the examples of the pages."""

import json

import pytest

from chat.api.chat_format.stream import PLAIN
from chat.api.text_format.answer import TextAnswer
from chat.api.text_format.head import TextHead
from chat.api.text_format.stream import TextStream
from engine.api import Admitted, Event, PromptScored, RankedLogprob, RawPrompt
from tests.chat.api.conftest import completed, delta, finished
from tests.chat.api.openapi.test_document import ENTRY, validator
from tests.chat.api.openapi.test_pages import EXAMPLE
from tests.chat.api.openapi.test_prompt_docs import PAGES

HEAD = TextHead(
    request_id="r",
    created=1,
    model="m",
    fingerprint="fp",
    prompts=(RawPrompt("ab"), RawPrompt("cd")),
    num_choices=1,
    echo=True,
    num_top=1,
    num_prompt_top=1,
    names_tokens_by_id=False,
    returns_token_ids=True,
    include_usage=True,
    continuous_usage=True,
    stream_interval=1,
    service_tier="flex",
)
PAYLOADS = [
    Event(0, 1, PromptScored(((), (RankedLogprob(2, -1.0, 1, "b"),)))),
    Event(0, 1, delta("x", logprobs=(ENTRY,))),
    Event(0, 1, finished(stop_reason=7)),
    Event(0, 1, completed()),
]
INDEXED_PAYLOADS = [
    (index, payload) for index in (0, 1) for payload in (Admitted(2, 9, 1, (1, 2), None, ("a", "b")), *PAYLOADS)
]


def test_an_answer_matches_its_description_exactly(components):
    answer = TextAnswer(HEAD)
    for index, payload in INDEXED_PAYLOADS:
        answer.feed(index, payload)
    validator(components, "TextCompletion").validate(json.loads(answer.body()))


def test_chunks_match_their_description_exactly(components):
    stream = TextStream(HEAD, PLAIN)
    frames = b"".join([*(stream.feed(index, payload) for index, payload in INDEXED_PAYLOADS), stream.end()]).decode()
    chunks = [json.loads(line[6:]) for line in frames.splitlines() if line.startswith("data: {")]
    assert len(chunks) == 7
    for chunk in chunks:
        validator(components, "TextCompletionChunk").validate(chunk)


@pytest.mark.parametrize(
    ("page", "name"),
    [("completions", "CompletionRequest"), ("embeddings", "EmbeddingRequest"), ("rerank", "RerankRequest")],
)
def test_the_examples_of_the_pages_fit_the_described_requests(components, page, name):
    described = validator(components, name, is_complete=False)
    for example in EXAMPLE.findall((PAGES / f"{page}.md").read_text()):
        described.validate(json.loads(example))
