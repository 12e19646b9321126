"""The OpenAPI schemas of Scale's routes match their answers and the examples of their page."""

import json

import pytest

from tests.chat.api.conftest import api, scripted  # noqa: F401  # fixtures
from tests.chat.api.openapi.test_document import validator
from tests.chat.api.openapi.test_pages import EXAMPLE
from tests.chat.api.openapi.test_scale_docs import CHAT, PROMPT_FORM
from tests.chat.api.scale.conftest import ROUTE, body, scale  # noqa: F401
from tests.chat.api.scale.test_models import _catalogue  # noqa: F401


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v4/models", "ScaleModels"),
        ("/v4/models/bare", "ScaleModel"),
        ("/v5/chat/completions/models", "ScaleChatModels"),
        ("/v5/models", "ScaleModelsPage"),
    ],
)
async def test_a_list_matches_its_description_exactly(components, scale, path, name):  # noqa: F811
    validator(components, name).validate((await scale.get(path)).json())


async def test_an_error_matches_its_description_exactly(components, scale):  # noqa: F811
    validator(components, "ScaleErrorBody").validate((await scale.post(ROUTE, json=body(temperature=9))).json())


@pytest.mark.parametrize(
    ("page", "name", "needed"), [(CHAT, "ScaleChatRequest", body()), (PROMPT_FORM, "ScaleTextRequest", {"model": "m"})]
)
def test_the_examples_of_the_page_fit_the_described_request(components, page, name, needed):  # noqa: F811
    described = validator(components, name, is_complete=False)
    for example in EXAMPLE.findall(page):
        described.validate(needed | json.loads(example))
