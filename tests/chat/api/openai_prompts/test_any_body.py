"""Any JSON in fields of a prompt request gives engine runs or one 400 with the reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.api.openai.dialect import TEXT_COMPLETIONS
from chat.api.openai.embeddings import EMBEDDINGS, EmbeddingRequest
from chat.api.openai.tokens import DETOKENIZE_DIALECT, TOKENIZE_DIALECT, DetokenizeRequest, TokenizeRequest
from chat.api.request.text_schema import CompletionRequest
from chat.errors import ApiError
from engine.api import GenerationRequest
from engine.api.wire import request_from_plain, request_to_plain
from tests.chat.api.request.building import generation_built
from tests.chat.api.request.test_any_body import CALLER, JSON, TYPED
from tests.examples import examples

PROMPTS = (
    st.text(max_size=5) | st.lists(st.integers(0, 9), max_size=3) | st.lists(st.text(max_size=3), max_size=3) | JSON
)
READERS = {
    "completions": (TEXT_COMPLETIONS, CompletionRequest, "prompt", lambda parsed: parsed.of(0)),
    "embeddings": (EMBEDDINGS, EmbeddingRequest, "input", lambda parsed: parsed.of(0)),
    "tokenize": (TOKENIZE_DIALECT, TokenizeRequest, "prompt", lambda parsed: parsed),
    "detokenize": (DETOKENIZE_DIALECT, DetokenizeRequest, "tokens", lambda parsed: parsed),
}


def outcome(dialect, run_request, body) -> GenerationRequest | ApiError:
    try:
        return generation_built(run_request(dialect.parse(body)), CALLER)
    except ApiError as error:
        return error


@pytest.mark.parametrize("name", READERS)
@examples(60)
@given(data=st.data())
def test_any_json_in_fields_is_read_or_refused(name, data):
    dialect, schema, prompt, run_request = READERS[name]
    names = sorted({*schema().fields, "messages", "content"})
    fields = data.draw(st.dictionaries(st.sampled_from(names), JSON, max_size=3)) | dict(
        data.draw(st.lists(TYPED, max_size=2))
    )
    result = outcome(dialect, run_request, {**fields, prompt: data.draw(PROMPTS)})
    if isinstance(result, GenerationRequest):
        assert request_from_plain(json.loads(json.dumps(request_to_plain(result)))) == result
        return
    assert result.status == 400
    assert result.param is not None
    assert result.message
