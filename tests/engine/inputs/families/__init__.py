"""Templates in the structure of well-known families, and conversations that exercise them."""

from pathlib import Path
from typing import Any

FAMILIES = ("chatml", "llama3", "mistral", "qwen3", "gpt_oss", "gemma", "magistral")
BOS, EOS = "<|im_start|>", "<|im_end|>"
"""Of the tiny tokenizer."""

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {}}},
    },
}
CALL: dict[str, Any] = {
    "id": "abcdef123",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Köln"}},
}
USER, ANSWER = {"role": "user", "content": "Hello <b>"}, {"role": "assistant", "content": "Good day."}
SYSTEM = {"role": "system", "content": "Be kind."}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "content": "rain"}

PLAIN = [USER, ANSWER, {"role": "user", "content": " Again? \n"}]
WITH_SYSTEM = [SYSTEM, *PLAIN]
WITH_CALLS = [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULT]


def source(family: str) -> str:
    return (Path(__file__).parent / f"{family}.jinja").read_text(encoding="utf-8")
