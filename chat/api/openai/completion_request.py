"""OpenAI's text completions as a dialect of text_completion.py."""

from __future__ import annotations

from typing import Any

from chat.api.chat_format.framing import PLAIN
from chat.api.openai.prompt_format import PromptFormat
from chat.api.request.text_schema import TextRequest, text_parse


class TextCompletions(PromptFormat):
    framing = PLAIN

    def parse(self, body: dict[str, Any]) -> TextRequest:
        return text_parse(body)


TEXT_COMPLETIONS = TextCompletions()
