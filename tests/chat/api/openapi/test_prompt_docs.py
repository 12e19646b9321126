"""The pages on texts, tokens, embeddings, rankings and speech have types, limits, defaults and accepted examples."""

import json
import re
from pathlib import Path

import pytest

from chat.api.openai.audio import TRANSCRIPTIONS, TranscriptionRequest
from chat.api.openai.embeddings import EMBEDDINGS, EmbeddingRequest
from chat.api.openai.rerank import JINA, RerankRequest
from chat.api.openai.tokens import PROMPT_FIELDS, DetokenizeRequest, TokenizeRequest
from chat.api.request.form import SentFile
from chat.api.request.text_schema import CompletionRequest, text_parse
from tests.chat.api.openapi.test_pages import EXAMPLE, facts

PAGES = Path(__file__).resolve().parents[4] / "docs" / "api"


def form_parse(example):
    """Read an example of the fields of a form, whose file is a name."""
    return TRANSCRIPTIONS.parse(example | {"file": SentFile("meeting.m4a", b"sound")})


DESCRIBED = {
    "audio": (TranscriptionRequest(), form_parse),
    "completions": (CompletionRequest(), text_parse),
    "embeddings": (EmbeddingRequest(), EMBEDDINGS.parse),
    "rerank": (RerankRequest(), JINA.parse),
}
OWN = [(page, name) for page, (schema, _) in DESCRIBED.items() for name in schema.fields if name not in schema.shared]


def sections(page: str) -> dict[str, str]:
    return dict(
        re.findall(r"^### `(\w+)`\n(.*?)(?=^#|\Z)", (PAGES / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    )


@pytest.mark.parametrize(("page", "name"), OWN)
def test_a_field_has_its_type_limits_default_effect_and_a_good_example(page, name):
    schema, read = DESCRIBED[page]
    section = sections(page)[name]
    assert section.splitlines()[0] == facts(schema.fields[name].schema_object(), schema.fields[name].required)
    assert len("\n".join(section.splitlines()[1:]).split("Example:")[0].split()) >= 5, "says what it does"
    (example,) = EXAMPLE.findall(section)
    assert name in json.loads(example)
    read(json.loads(example))


@pytest.mark.parametrize("page", DESCRIBED)
def test_the_page_describes_no_other_field_and_names_all_shared_ones(page):
    schema, _ = DESCRIBED[page]
    assert list(sections(page)) == [name for name in sections(page) if name not in schema.shared]
    assert set(sections(page)) | set(schema.shared) == set(schema.fields)
    shared = (
        (PAGES / f"{page}.md")
        .read_text()
        .partition("## Fields shared")[2]
        .partition("\n\nFields of")[0]
        .partition("\n## ")[0]
    )
    assert set(re.findall(r"`(\w+)`", shared)) == set(schema.shared)


def test_every_field_of_the_routes_of_tokens_is_on_their_page():
    text = (PAGES / "tokens.md").read_text()
    names = {*TokenizeRequest().fields, *DetokenizeRequest().fields, *PROMPT_FIELDS} - {
        "mm_processor_kwargs",
        "media_io_kwargs",
    }
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
