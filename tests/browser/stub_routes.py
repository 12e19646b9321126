"""Answers in the place of routes that need a worker: the code of a request, and a prompt as its template renders it."""

from __future__ import annotations

import json
from typing import Any


def code_route(page: Any) -> list[dict[str, Any]]:
    """Answer the route of View code with the request itself. Returns the bodies it gets."""
    bodies: list[dict[str, Any]] = []

    def fulfil(route: Any) -> None:
        body = route.request.post_data_json
        bodies.append(body)
        text = json.dumps(body["request"]) + (f"\n# {body['answer']}" if "answer" in body else "")
        names = (("raw", "JSON", "json"), ("curl", "curl", "shell"), ("python", "Python (openai)", "python"))
        route.fulfill(
            json={"snippets": [{"name": n, "title": t, "language": lang, "text": text} for n, t, lang in names]}
        )

    page.route("**/playground/api/code", fulfil)
    return bodies


def render_route(page: Any, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answer the route that renders prompts, the last answer for ever. Returns the bodies it gets."""
    bodies: list[dict[str, Any]] = []

    def fulfil(route: Any) -> None:
        bodies.append(route.request.post_data_json)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        route.fulfill(json=answer, status=409 if "error" in answer else 200)

    page.route("**/playground/api/render", fulfil)
    return bodies


def rendered(num_tokens: int, max_tokens: int | None = None, prompt: str = "<|user|>hello") -> dict[str, Any]:
    return {
        "model": "plain",
        "prompt": prompt,
        "num_tokens": num_tokens,
        "context": 8192,
        "max_tokens": max_tokens,
        "num_messages": 3,
    }
