"""The page on chat completions names every field and every error code."""

from pathlib import Path

from chat.dialects.request.schema import ChatCompletionRequest
from chat.errors import ANSWERS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api" / "chat-completions.md").read_text()
NOT_SERVED_YET = {"untrusted_chat_template", "invalid_media", "insufficient_credits", "insufficient_quota"}


def test_every_field_is_on_the_page():
    assert [name for name in ChatCompletionRequest().fields if f"`{name}`" not in PAGE] == []


def test_every_error_code_is_on_the_page():
    assert [code for code in ANSWERS if code not in NOT_SERVED_YET and f"`{code}`" not in PAGE] == []
