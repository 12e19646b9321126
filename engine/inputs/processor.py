"""Messages to token ids: files read, control texts marked, rendered, cut, tokenised. Called in the thread that submits a run.

Control tokens that a client types in a message, document, tool or variable are not control tokens (marks.py). Messages of the
assistant are exempt: they may quote the model's own output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.api.errors import ErrorCode, ModelLoadError, RequestError
from engine.api.request import GenerationRequest, Message, PromptOptions
from engine.api.tools import Json
from engine.inputs.files import FileReader
from engine.inputs.limits import context_length_exceeded
from engine.inputs.marks import ControlTexts, Marks, Piece
from engine.inputs.rendering import Renderer, RenderJob, TrialRenderer
from engine.inputs.template import MAX_OUTPUT_CHARS
from engine.inputs.truncation import SPARE_TOKENS, cut_ids, cut_pieces, kept_tokens
from engine.tokenizer import Tokenizer

MIN_SLICE_CHARS, COMMON_TOKEN_CHARS = 100_000, 8
"""Text of at most so many characters (the second per token of the context) is tokenised without a look at its first slices."""
KNOWN_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads. `text` is that of `token_ids`: where the prompt was truncated, what is left of it."""

    token_ids: list[int]
    text: str


class PromptProcessor:
    """Turns the requests of one model into prompts. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, renderer: Renderer | None = None) -> None:
        """Raises ModelLoadError when the model's template cannot be used."""
        self._tokenizer = tokenizer
        self._controls = ControlTexts(tokenizer.added_texts)
        self._renderer = renderer or TrialRenderer()
        self._files = FileReader()
        if tokenizer.chat_template is not None:
            try:
                self._renderer.check(tokenizer.chat_template)
            except ModelLoadError:
                self.close()
                raise

    def close(self) -> None:
        """End the helper processes. Idempotent."""
        self._renderer.close()
        self._files.close()

    def prompt(self, request: GenerationRequest, max_model_len: int) -> Prompt:
        """The prompt of a request. Raises RequestError; a text that no tokenising could make fit is refused before it is tokenised.

        1. Files become text, control texts become marks, the last message gets a mark if it is left open.
        2. The template renders; reasoning and message are left open at their marks.
        3. Text that is too long is cut, or refused; what is left is tokenised and cut to the tokens that are asked for.
        """
        options = request.prompt
        num_kept = kept_tokens(options.truncate_to, max_model_len)
        marks = Marks(self._controls)
        messages = [_marked(message, marks) for message in self._files.read(request.messages)]
        if options.continue_final_message and messages:
            messages = [*messages[:-1], _left_open(messages[-1], marks)]
        max_chars = max_model_len * self._tokenizer.longest_token_chars
        text = self._rendered(request, messages, marks, MAX_OUTPUT_CHARS if num_kept is not None else marks.spread(max_chars))
        if text is not None:
            text = _ended(text, messages[-1], marks) if options.continue_final_message and messages else text
            pieces = marks.split(marks.close_open_reasoning(text))
        if text is None or (num_kept is None and sum(len(piece.text) for piece in pieces) > max_chars):
            raise _too_long(request, max_chars, max_model_len, is_cut=num_kept is not None)
        if num_kept is None:
            self._check_tokens(pieces, request, max_model_len)
            return Prompt(self._encode(pieces, options.add_special_tokens), "".join(piece.text for piece in pieces))
        return self._truncated(pieces, num_kept, options)

    def _check_tokens(self, pieces: list[Piece], request: GenerationRequest, max_model_len: int) -> None:
        """Refuse text of far more tokens than the context before all of it is tokenised; ordinary text is short enough to pass at once."""
        slice_chars = MIN_SLICE_CHARS + COMMON_TOKEN_CHARS * max_model_len
        num_chars = sum(len(piece.text) for piece in pieces)
        if num_chars <= slice_chars:
            return
        text = "".join(piece.text for piece in pieces)
        num_tokens = 0
        for start in range(0, num_chars, slice_chars):
            # NOTE: a cut may add a few tokens to those of the whole text, never a share of them.
            num_tokens += max(0, len(self._tokenizer.encode_ordinary(text[start : start + slice_chars])) - SPARE_TOKENS)
            if num_tokens > max_model_len:
                raise context_length_exceeded(num_tokens, request.stop.max_tokens, max_model_len)

    def _rendered(self, request: GenerationRequest, messages: list[Message], marks: Marks, max_chars: int) -> str | None:
        options = request.prompt
        source = self._tokenizer.chat_template if options.chat_template is None else options.chat_template
        if source is None:
            raise RequestError(ErrorCode.INVALID_VALUE, "this model has no chat template", "messages")
        documents = marks.swap(list(options.documents)) if options.documents else None
        variables: dict[str, Json] = {
            **self._tokenizer.special_tokens,
            "add_generation_prompt": options.add_generation_prompt and not options.continue_final_message,
            "documents": documents,
        }
        free: Any = marks.swap(options.template_kwargs)
        tools: Any = marks.swap([tool.spec for tool in request.tools])
        job = RenderJob(messages, variables, free, tools, min(max_chars, MAX_OUTPUT_CHARS))
        return self._renderer.render(source, job, is_models=options.chat_template is None)

    def _truncated(self, pieces: list[Piece], num_kept: int, options: PromptOptions) -> Prompt:
        """A prompt of at most `num_kept` tokens; text far beyond them is not tokenised."""
        side = options.truncation_side
        cut = cut_pieces(pieces, num_kept, self._tokenizer.longest_token_chars, side)
        token_ids = self._encode(cut, options.add_special_tokens)
        kept = cut_ids(token_ids, num_kept, side)
        if len(kept) == len(token_ids):
            return Prompt(kept, "".join(piece.text for piece in cut))
        return Prompt(kept, b"".join(map(self._tokenizer.token_bytes, kept)).decode("utf-8", "replace"))

    def _encode(self, pieces: list[Piece], add_special_tokens: bool) -> list[int]:
        token_ids: list[int] = []
        for index, piece in enumerate(pieces):
            if piece.is_typed:
                token_ids += self._tokenizer.encode_ordinary(piece.text)
            else:
                token_ids += self._tokenizer.encode(piece.text, add_special_tokens=add_special_tokens and index == 0)
        return token_ids


def _marked(message: Message, marks: Marks) -> Message:
    """The message with its control texts marked, and reasoning that is to stay open."""
    role, content = message.get("role"), message.get("content")
    if role != "assistant":
        return {name: value if name == "role" and value in KNOWN_ROLES else marks.swap(value) for name, value in message.items()}
    if not isinstance(content, list):
        return message
    is_open = any(_is_thinking(part) and part.get("closed") is False for part in content if isinstance(part, dict))
    parts: list[Json] = [part for part in content if not _is_thinking(part)]
    reasoning = message.get("reasoning")
    if not is_open or not isinstance(reasoning, str):
        return message | {"content": parts}
    return message | {"content": parts, "reasoning": reasoning + marks.open, "reasoning_content": reasoning + marks.open}


def _is_thinking(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "thinking"


def _left_open(message: Message, marks: Marks) -> Message:
    """The last message with a mark, and a blank that tells whether the template trims, behind its text. Raises RequestError."""
    if message.get("tool_calls"):
        raise _cannot_continue("it ends with tool calls")
    ending = marks.end + " "
    content = message.get("content")
    if not isinstance(content, list):
        return message | {"content": f"{content or ''}{ending}"}
    parts: list[Json] = list(content)
    last = next((part for part in reversed(parts) if isinstance(part, dict) and isinstance(part.get("text"), str)), None)
    if last is None:
        return message | {"content": [*parts, {"type": "text", "text": ending}]}
    return message | {"content": [part | {"text": f"{part['text']}{ending}"} if part is last else part for part in parts]}


def _ended(text: str, message: Message, marks: Marks) -> str:
    """Rendered text up to the end of its last message, as transformers cuts it. Raises RequestError.

    Where the message is nothing but open reasoning, it ends with that. White space that the template would have trimmed is cut too.
    """
    place = text.rfind(marks.end)
    if place < 0:
        raise _cannot_continue("the chat template changes it so that its end cannot be found")
    content = message["content"]
    written = "".join(_texts(content)).removesuffix(" ").removesuffix(marks.end)
    open_place = text.rfind(marks.open)
    if not written and open_place >= 0:
        return text[:open_place]
    after = place + len(marks.end)
    if text[after : after + 1] == " ":
        return text[:place]
    num_blanks = len(written) - len(written.rstrip())
    return text[: place - num_blanks] if not text[place - num_blanks : place].strip() else text[:place]


def _texts(content: Json) -> list[str]:
    """The text of a message, one for each of its parts."""
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]  # type: ignore[misc]
    return [content] if isinstance(content, str) else []


def _cannot_continue(reason: str) -> RequestError:
    message = f"continue_final_message cannot continue the last message: {reason}"
    return RequestError(ErrorCode.INVALID_VALUE, message, "messages")


def _too_long(request: GenerationRequest, max_chars: int, max_model_len: int, *, is_cut: bool) -> RequestError:
    if is_cut or max_chars > MAX_OUTPUT_CHARS:
        return RequestError(ErrorCode.INVALID_VALUE, f"the prompt must have at most {MAX_OUTPUT_CHARS} characters", "messages")
    # NOTE: the count is a lower bound; counting exactly is the work that this check avoids.
    return context_length_exceeded(max_model_len + 1, request.stop.max_tokens, max_model_len)
