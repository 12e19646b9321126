"""Messages to token ids: normalise for the template, render, tokenise. Called in the thread that submits a run.

Control tokens that a client types in a message are not control tokens: before rendering they are swapped for private marks, and
what stood there is encoded as ordinary text afterwards. Messages of the assistant are exempt: they may quote the model's own output.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import GenerationRequest, Json, Message
from engine.inputs.limits import context_length_exceeded
from engine.inputs.template import MAX_OUTPUT_CHARS, ChatTemplate, PromptTooLong
from engine.tokenizer import Tokenizer


class PromptProcessor:
    """Holds the compiled template of one model. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ModelLoadError when the model's template cannot be compiled."""
        self._tokenizer = tokenizer
        self._template = ChatTemplate(tokenizer.chat_template) if tokenizer.chat_template else None
        self._control = re.compile("|".join(map(re.escape, tokenizer.added_texts))) if tokenizer.added_texts else None

    def prompt_ids(self, request: GenerationRequest, max_model_len: int) -> list[int]:
        """The prompt of a request. Raises RequestError; a text that no tokenising could make fit is refused before it is tokenised."""
        if self._template is None:
            raise RequestError(ErrorCode.INVALID_VALUE, "this model has no chat template", "messages")
        marks = _Marks(self._control)
        messages = [self._prepare(message, marks) for message in request.messages]
        variables = self._tokenizer.special_tokens | {
            "add_generation_prompt": request.prompt.add_generation_prompt,
            "tools": None,
            "documents": None,
        }
        max_chars = max_model_len * self._tokenizer.longest_token_chars
        try:
            text = self._template.render(messages, variables, max_chars=min(marks.spread(max_chars), MAX_OUTPUT_CHARS))
            pieces = marks.split(text)
            if sum(len(piece) for piece, _ in pieces) > max_chars:
                raise PromptTooLong
        except PromptTooLong as error:
            if max_chars > MAX_OUTPUT_CHARS:
                message = f"the prompt must have at most {MAX_OUTPUT_CHARS} characters"
                raise RequestError(ErrorCode.INVALID_VALUE, message, "messages") from error
            # NOTE: the count is a lower bound; counting exactly is the work that this check avoids.
            raise context_length_exceeded(max_model_len + 1, request.stop.max_tokens, max_model_len) from error
        return self._encode(pieces, request.prompt.add_special_tokens)

    def _encode(self, pieces: list[tuple[str, bool]], add_special_tokens: bool) -> list[int]:
        token_ids: list[int] = []
        for index, (piece, is_typed) in enumerate(pieces):
            if is_typed:
                token_ids += self._tokenizer.encode_ordinary(piece)
            else:
                token_ids += self._tokenizer.encode(piece, add_special_tokens=add_special_tokens and index == 0)
        return token_ids

    def _prepare(self, message: Message, marks: _Marks) -> Message:
        """The message as templates expect it: content in one form, call arguments as objects, reasoning under both names."""
        role = message.get("role")
        prepared = message if role == "assistant" else {key: marks.swap(value) for key, value in message.items()}
        prepared = dict(prepared)
        if role == "developer" and self._template and not self._template.knows_developer:
            prepared["role"] = "system"
        prepared["content"] = self._content(prepared.get("content"))
        if prepared.get("tool_calls"):
            prepared["tool_calls"] = [_with_argument_object(call) for call in prepared["tool_calls"]]  # type: ignore[union-attr]
        else:
            prepared.pop("tool_calls", None)
        reasoning = prepared.get("reasoning", prepared.get("reasoning_content"))
        if reasoning is not None:
            prepared["reasoning"] = prepared["reasoning_content"] = reasoning
        return prepared

    def _content(self, content: Json) -> Json:
        """A list of parts or one string, as the template takes it; text parts join with a line break."""
        if self._template and self._template.takes_parts:
            parts = [content] if isinstance(content, str) else content or []
            return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]  # type: ignore[union-attr]
        if isinstance(content, list):
            return "\n".join(_part_text(part) for part in content)
        return content if content is not None else ""


class _Marks:
    """The control texts that a client typed in one request, each swapped for a mark that cannot be guessed."""

    def __init__(self, control: re.Pattern[str] | None) -> None:
        self._control = control
        self._nonce = secrets.token_hex(8)
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def swap(self, value: Json) -> Json:
        """The value with marks in its strings, however deep."""
        if isinstance(value, str):
            return self._control.sub(self._mark, value) if self._control else value
        if isinstance(value, list):
            return [self.swap(item) for item in value]
        if isinstance(value, dict):
            return {str(self.swap(key)): self.swap(item) for key, item in value.items()}
        return value

    def spread(self, num_chars: int) -> int:
        """A bound on text with marks, where `num_chars` bounds the text without."""
        longest = max((len(self._spell(number)) for number in self._numbers.values()), default=1)
        return num_chars * longest

    def split(self, text: str) -> list[tuple[str, bool]]:
        """Cut rendered text into (piece, whether a client typed it as a control text), in order, no empty ones."""
        if not self._texts:
            return [(text, False)] if text else []
        cut = re.split(f"\ue000{self._nonce}\\.(\\d+)\ue001", text)
        pieces = [(self._texts[int(piece)], True) if index % 2 else (piece, False) for index, piece in enumerate(cut)]
        return [piece for piece in pieces if piece[0]]

    def _mark(self, match: re.Match[str]) -> str:
        text = match.group()
        if text not in self._numbers:
            self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return self._spell(self._numbers[text])

    def _spell(self, number: int) -> str:
        return f"\ue000{self._nonce}.{number}\ue001"


def _part_text(part: Json) -> str:
    if isinstance(part, dict):
        text = part.get("text", part.get("refusal", ""))
        return text if isinstance(text, str) else ""
    return part if isinstance(part, str) else ""


def _with_argument_object(call: Any) -> Any:
    """A tool call whose arguments are an object where they are the JSON text of one; other text is left as it is."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return call
    return call | {"function": function | {"arguments": arguments}}
