"""Bodies generated from the OpenAPI document, valid or nearly, never give a 5xx, and every answer is described."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.contract.refusals.conftest import QUESTION

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
ROUTE = "/v1/chat/completions"
BOUNDED = {"max_completion_tokens": 4, "n": 2}
"""Fields that keep answers short, where a body is an object; other fields stay as generated."""
examples = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def operation(client: Any) -> Any:
    document = client.get("/api/schema").json()
    return schemathesis.openapi.from_dict(document)[ROUTE]["POST"]


def assert_described(case: Any, client: Any) -> None:
    response = case.call(
        base_url=str(client.base_url), headers=dict(client.headers) | {"Content-Type": "application/json"}, timeout=120
    )
    case.validate_response(response, checks=CHECKS)


def test_generated_bodies_never_give_a_5xx(operation, client):
    @examples
    @given(case=operation.as_strategy())
    def run(case):
        if isinstance(case.body, dict):
            case.body |= BOUNDED
        assert_described(case, client)

    run()


def test_valid_conversations_with_any_other_fields_are_read_or_refused(operation, client):
    @examples
    @given(case=operation.as_strategy(), kept=st.sets(st.integers(0, 74), max_size=6))
    def run(case, kept):
        if isinstance(case.body, dict):
            fields = [name for name in sorted(case.body) if name not in BOUNDED]
            case.body = (
                {name: case.body[name] for index, name in enumerate(fields) if index in kept} | QUESTION | BOUNDED
            )
        assert_described(case, client)

    run()
