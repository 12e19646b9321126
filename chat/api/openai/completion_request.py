"""OpenAI's text completions as a dialect of text_completion.py."""

from __future__ import annotations

from typing import Any

from chat.api.chat_format.framing import PLAIN
from chat.api.openai.prompt_format import PromptFormat
from chat.api.request.text_schema import text_check, text_refusal_reworded
from engine.api import EngineError


class TextCompletions(PromptFormat):
    framing = PLAIN

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        return text_check(body)

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        return text_refusal_reworded(error, values)


TEXT_COMPLETIONS = TextCompletions()
