"""The part that all routes of raw prompts share. A route is a subclass with a `parse` of its own."""

from __future__ import annotations

from chat.api.dialect import OpenAIErrorFormat


class PromptFormat(OpenAIErrorFormat):
    name = "prompts"
