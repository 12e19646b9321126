"""The page and the schemas of files and batches match the served ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
from django.test import RequestFactory
from jsonschema import Draft202012Validator

from chat.api.openapi.document import schema_view
from chat.batches import input_lines
from chat.batches.services import ENDPOINTS
from chat.batches.views import BatchRequest
from tests.chat.api.batches.conftest import file_id
from tests.chat.api.batches.test_batches_api import create

PAGE = (Path(__file__).parents[4] / "docs/api/batches.md").read_text()


def validator(name: str) -> Draft202012Validator:
    components = json.loads(schema_view(RequestFactory().get("/api/schema")).content)["components"]
    described = components["schemas"][name]
    components["schemas"][name] = described | {"additionalProperties": False}
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": components})


def test_the_page_documents_every_field_of_a_batch_in_order() -> None:
    assert re.findall(r"^### `(\w+)`$", PAGE, re.M) == list(BatchRequest().fields)
    assert all(f"`{endpoint}`" in PAGE for endpoint in ENDPOINTS)


def test_the_page_documents_every_error_code_of_a_line() -> None:
    source = Path(input_lines.__file__).read_text()
    codes = set(re.findall(r'(?:LineRefused|_error)\("(\w+)"', source))
    assert len(codes) > 7
    assert all(f"`{code}`" in PAGE for code in codes)


async def test_answers_match_their_description_exactly(api: httpx.AsyncClient) -> None:
    validator("FileBody").validate((await api.get(f"/v1/files/{await file_id(api)}")).json())
    validator("FileList").validate((await api.get("/v1/files")).json())
    validator("BatchBody").validate((await create(api)).json())
    validator("BatchList").validate((await api.get("/v1/batches")).json())
