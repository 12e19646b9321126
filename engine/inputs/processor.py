"""Messages to token ids: files read, control texts marked, rendered, cut, tokenised. Called in the thread that submits a run.

Prompts without messages go another way (raw_prompt.py). Control tokens that a client types in a message, document, tool or variable are not
control tokens (marks.py). Messages of the assistant are exempt: they may quote the model's own output.
"""

from __future__ import annotations

from typing import Any

from engine.api.errors import ErrorCode, ModelLoadError, RequestError
from engine.api.prompt_size import MAX_PROMPT_CHARS, prompt_chars, prompt_too_long
from engine.api.request import GenerationRequest, Message
from engine.api.tools import Json
from engine.inputs.continuation import ended, left_open
from engine.inputs.encoding import PieceEncoder
from engine.inputs.files import FileReader
from engine.inputs.marks import ControlTexts, Marks
from engine.inputs.prompt import Prompt
from engine.inputs.raw_prompt import RawPromptReader
from engine.inputs.rendering import KillableRenderer, Renderer, RenderJob
from engine.inputs.template import KNOWN_ROLES
from engine.inputs.truncation import kept_tokens
from engine.slow_work import SlowWork
from engine.tokenizers.tokenizer import Tokenizer


class PromptProcessor:
    """Turns the requests of one model into prompts. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, renderer: Renderer | None = None, work: SlowWork | None = None) -> None:
        """`work`: the slow work of the worker. Raises ModelLoadError when the model's template cannot be used."""
        self._work = work = work or SlowWork()
        self._tokenizer = tokenizer
        self._controls = ControlTexts(tokenizer.added_texts)
        self._encoder = PieceEncoder(tokenizer, self._controls)
        self._raw = RawPromptReader(tokenizer, self._encoder)
        self._renderer = renderer or KillableRenderer(work)
        self._files = FileReader(work)
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
        if request.raw is not None:
            with self._work.on_text(len(request.raw.text) + len(request.raw.suffix or ""), request.tenant):
                return self._raw.prompt(request, request.raw, max_model_len)
        options = request.prompt
        num_kept = kept_tokens(options.truncate_to, max_model_len)
        marks = Marks(self._controls)
        messages = [_marked(message, marks) for message in self._files.read(request.messages, request.tenant)]
        if options.continue_final_message and messages:
            messages = [*messages[:-1], left_open(messages[-1], marks)]
        max_chars = prompt_chars(request, self._tokenizer.longest_token_chars, max_model_len)
        text = self._rendered(request, messages, marks, marks.spread(max_chars))
        if text is not None:
            text = ended(text, messages[-1], marks) if options.continue_final_message and messages else text
            pieces = marks.split(marks.close_open_reasoning(text))
        num_chars = 0 if text is None else sum(len(piece.text) for piece in pieces)
        if text is None or num_chars > max_chars:
            raise prompt_too_long(request, max_chars, max_model_len)
        with self._work.on_text(num_chars, request.tenant):
            if num_kept is not None:
                return Prompt(*self._encoder.encode_kept(pieces, num_kept, options))
            self._encoder.check(pieces, request, max_model_len)
            return Prompt(
                self._encoder.encode(pieces, options.add_special_tokens), "".join(piece.text for piece in pieces)
            )

    def _rendered(
        self, request: GenerationRequest, messages: list[Message], marks: Marks, max_chars: int
    ) -> str | None:
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
        job = RenderJob(messages, variables, free, tools, min(max_chars, MAX_PROMPT_CHARS), request.tenant)
        return self._renderer.render(source, job, is_models=options.chat_template is None)


def _marked(message: Message, marks: Marks) -> Message:
    """The message with its control texts marked, and reasoning that is to stay open."""
    role, content = message.get("role"), message.get("content")
    if role != "assistant":
        return {
            name: value if name == "role" and value in KNOWN_ROLES else marks.swap(value)
            for name, value in message.items()
        }
    if not isinstance(content, list):
        return message
    is_open = any(_is_thinking(part) and part.get("closed") is False for part in content if isinstance(part, dict))
    parts: list[Json] = [part for part in content if not _is_thinking(part)]
    reasoning = message.get("reasoning")
    if not is_open or not isinstance(reasoning, str):
        return message | {"content": parts}
    return message | {
        "content": parts,
        "reasoning": reasoning + marks.open,
        "reasoning_content": reasoning + marks.open,
    }


def _is_thinking(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "thinking"
