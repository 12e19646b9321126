"""The examples on the API page are answered as they are."""

from __future__ import annotations

import json

import httpx
import pytest

from chat.api.openapi.answers import MODEL_NAME

pytestmark = pytest.mark.live

NEEDS_AN_ID = {"create_batch", "update_chat_completion"}
TAKES_ADMIN_KEYS = "/v1/organization/"  # tests/contract/test_organization.py
NEEDS_A_RERANKER = {"create_ranking", "create_cohere_ranking"}
NEEDS_A_RIGHT = {
    *("pull_model", "import_models", "check_model", "copy_model", "load_model", "unload_model"),
    *("ollama_pull", "ollama_create", "ollama_copy"),
}


def test_every_example_of_the_page_is_answered(lightcone):
    """The unchanged example of POST /v1/chat/completions gave a 400: functions cannot be combined with tools."""
    with httpx.Client(
        base_url=lightcone.base_url, headers={"Authorization": f"Bearer {lightcone.api_key}"}, timeout=120
    ) as client:
        paths = client.get("/api/schema").json()["paths"]
        asked = {}
        for path, methods in paths.items():
            content = methods.get("post", {}).get("requestBody", {}).get("content", {})
            passed_over = NEEDS_AN_ID | NEEDS_A_RIGHT | NEEDS_A_RERANKER
            if path.startswith(TAKES_ADMIN_KEYS):
                continue
            if "application/json" in content and methods["post"]["operationId"] not in passed_over:
                body = json.dumps(content["application/json"]["example"]).replace(MODEL_NAME, lightcone.model)
                answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
                asked[path] = (answer.status_code, "" if answer.is_success else answer.text)
    assert len(asked) >= 13
    assert {path: outcome for path, outcome in asked.items() if outcome[0] != 200} == {}
