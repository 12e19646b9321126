"""Small bodies that work as they stand, one per route that takes JSON, which the page of the API offers to send.

Without a model, as the default one answers then; where a name is needed the page puts that of the default model in the place of
`MODEL_NAME`. Ids of what the reader has not made yet are his to fill in.
"""

from __future__ import annotations

from typing import Any

ASK = [{"role": "user", "content": "Say hello in one short sentence."}]
CHAT = {"messages": ASK, "max_tokens": 32}
MODEL_NAME = "MODEL_NAME"
TEXT = "Light travels in straight lines"

EXAMPLES: dict[str, dict[str, Any]] = {
    "create_chat_completion": CHAT,
    "update_chat_completion": {"metadata": {"topic": "greetings"}},
    "render_chat_completion": CHAT,
    "create_completion": {"prompt": TEXT, "max_tokens": 32},
    "create_embeddings": {"input": TEXT},
    "tokenize": {"content": TEXT},
    "detokenize": {"tokens": [100, 200, 300]},
    "create_message": CHAT,
    "count_message_tokens": {"messages": ASK},
    "create_response": {"input": ASK[0]["content"], "max_output_tokens": 32},
    "count_response_input_tokens": {"input": ASK[0]["content"]},
    "scale_v4_create_chat_completion": CHAT | {"model": MODEL_NAME},
    "scale_v5_create_chat_completion": CHAT | {"model": MODEL_NAME},
    "scale_create_completion": {"model": MODEL_NAME, "prompt": TEXT, "max_tokens": 32},
    "create_batch": {"input_file_id": "file-abc123", "endpoint": "/v1/chat/completions", "completion_window": "24h"},
}
"""By operation id."""


def examples_add(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Put the examples into a finished document, as a hook of the generator."""
    for methods in result["paths"].values():
        for operation in methods.values():
            example = EXAMPLES.get(operation["operationId"])
            if example is not None:
                operation["requestBody"]["content"]["application/json"]["example"] = example
    return result
