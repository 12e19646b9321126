"""Messages to token ids: read files, escape control texts, render, truncate, tokenise.

Runs in the thread that submits a run. raw_prompt.py handles prompts without messages. A control token that a client
types in a message, document, tool or variable is ordinary text (escaping.py). Messages of the assistant are exempt,
because they may quote the model's own output.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.api.errors import ErrorCode, ModelLoadError, RequestError
from engine.api.prompt_size import MAX_PROMPT_CHARS, prompt_chars, prompt_too_long
from engine.api.request import GenerationRequest, Json, Message
from engine.inputs.encoding import PieceEncoder, Prompt, num_kept_tokens
from engine.inputs.escaping import ControlTexts, ControlTokenEscaper
from engine.inputs.files import FileReader
from engine.inputs.images import (
    MEDIA,
    MediaInput,
    MediaReader,
    media_of,
    refuse_media,
    refuse_options,
    with_media,
    with_placeholders,
)
from engine.inputs.raw_prompt import RawPromptReader
from engine.inputs.rendering import KillableRenderer, Renderer, RenderJob
from engine.inputs.template import KNOWN_ROLES
from engine.model_kind import ModelPurpose
from engine.slow_work import SlowWork
from engine.tokenizers.tokenizer import Tokenizer


class PromptProcessor:
    """The maker of prompts for one model. Thread-safe."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        renderer: Renderer | None = None,
        work: SlowWork | None = None,
        purpose: ModelPurpose | None = None,
        media: MediaReader | None = None,
    ) -> None:
        """Check the model's template. Raises ModelLoadError if it cannot be used.

        `work`: the worker's limit on slow work. `purpose`: what the model is for, to chat if it is None. `media`: the
        reader of a model that takes some.
        """
        self._work = work = work or SlowWork()
        self._tokenizer = tokenizer
        # NOTE: placeholders too, which need be no tokens: nobody may type them.
        placeholders = [form.placeholder for form in media.forms] if media is not None else []
        self._controls = ControlTexts((*tokenizer.added_texts, *placeholders))
        self._encoder = PieceEncoder(tokenizer, self._controls)
        self._raw = RawPromptReader(tokenizer, self._encoder, purpose)
        self._renderer = renderer or KillableRenderer(work)
        self._files = FileReader(work, None if media is None else media.page_limits)
        self._media = media
        if tokenizer.chat_template is not None:
            try:
                self._renderer.check(tokenizer.chat_template)
            except ModelLoadError:
                self.close()
                raise

    @property
    def score_ids(self) -> list[int] | None:
        """The tokens for no and yes of a causal reranker; None for other models."""
        return self._raw.score_ids

    def close(self) -> None:
        """End the helper processes. Idempotent."""
        self._renderer.close()
        self._files.close()
        if self._media is not None:
            self._media.close()

    def prompt(self, request: GenerationRequest, max_model_len: int) -> Prompt:
        """Make the prompt of a request. Raises RequestError.

        1. Replace files by their text, take out media, escape control texts, and mark the end of a last message that
           is left open.
        2. Render the template; cut the text at the marks of an open message and open reasoning; put in the texts that
           stand for media.
        3. Refuse a text that could not fit whatever its tokens, before tokenising it. Tokenise, and truncate if asked.
        """
        if request.raw is not None:
            raw = request.raw
            num_chars = len(raw.text) + len(raw.suffix or "") + len(raw.document or "")
            with self._work.on_text(num_chars, request.tenant):
                return self._raw.prompt(request, raw, max_model_len)
        options = request.prompt
        num_kept = num_kept_tokens(options.truncate_to, max_model_len)
        escaper = ControlTokenEscaper(self._controls)
        messages, media = self._without_media(
            self._files.read(request.messages, request.tenant), request, max_model_len
        )
        messages = [_escape_message(message, escaper) for message in messages]
        if self._media is not None:
            for form in self._media.forms:
                typed = escaper.escape(form.placeholder)
                messages = [_without_text(message, form.placeholder, typed) for message in messages]
            messages = with_placeholders(messages, self._media.forms)
        if options.continue_final_message and messages:
            messages = [*messages[:-1], _leave_open(messages[-1], escaper)]
        max_chars = prompt_chars(request, self._tokenizer.longest_token_chars, max_model_len)
        text = self._render(request, messages, escaper, escaper.escaped_length(max_chars))
        if text is not None:
            text = _cut_at_end(text, messages[-1], escaper) if options.continue_final_message and messages else text
            pieces = escaper.split(escaper.close_open_reasoning(text))
            if self._media is not None and media:
                pieces = with_media(pieces, media, self._media.forms)
        num_chars = 0 if text is None else sum(len(piece.text) for piece in pieces)
        if text is None or num_chars > max_chars:
            raise prompt_too_long(request, max_chars, max_model_len)
        with self._work.on_text(num_chars, request.tenant):
            if num_kept is not None:
                return self._with_media(Prompt(*self._encoder.encode_truncated(pieces, num_kept, options)), media)
            self._encoder.check(pieces, request, max_model_len)
            token_ids = self._encoder.encode(pieces, options.add_special_tokens)
            return self._with_media(Prompt(token_ids, "".join(piece.text for piece in pieces)), media)

    def _without_media(
        self, messages: list[Message], request: GenerationRequest, max_model_len: int
    ) -> tuple[list[Message], list[MediaInput]]:
        options = request.prompt.media_options
        if self._media is not None:
            return self._media.read(messages, request.tenant, options, max_model_len)
        refuse_options(options)
        refuse_media(messages, MEDIA)
        return messages, []

    def _with_media(self, prompt: Prompt, media: list[MediaInput]) -> Prompt:
        """Return the prompt with the places of its media. Raises RequestError if some have been cut away."""
        if self._media is None:
            return prompt
        if not media:
            return prompt
        return replace(prompt, media=media_of(media, prompt.token_ids))

    def _render(
        self, request: GenerationRequest, messages: list[Message], escaper: ControlTokenEscaper, max_chars: int
    ) -> str | None:
        options = request.prompt
        source = self._tokenizer.chat_template if options.chat_template is None else options.chat_template
        if source is None:
            raise RequestError(ErrorCode.INVALID_VALUE, "this model has no chat template", "messages")
        documents = escaper.escape(list(options.documents)) if options.documents else None
        variables: dict[str, Json] = {
            **self._tokenizer.special_tokens,
            "add_generation_prompt": options.add_generation_prompt and not options.continue_final_message,
            "documents": documents,
        }
        free: Any = escaper.escape(options.template_kwargs)
        tools: Any = escaper.escape([tool.spec for tool in request.tools])
        job = RenderJob(messages, variables, free, tools, min(max_chars, MAX_PROMPT_CHARS), request.tenant)
        return self._renderer.render(source, job, is_models=options.chat_template is None)


def _escape_message(message: Message, escaper: ControlTokenEscaper) -> Message:
    """Return the message with control texts escaped, or, for the assistant, with open reasoning marked."""
    role, content = message.get("role"), message.get("content")
    if role != "assistant":
        return {
            name: value if name == "role" and value in KNOWN_ROLES else escaper.escape(value)
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
        "reasoning": reasoning + escaper.open_mark,
        "reasoning_content": reasoning + escaper.open_mark,
    }


def _without_text(message: Message, text: str, other: Json) -> Message:
    """Return a message with another text in place of `text` in what it says: an assistant may quote a placeholder."""
    content = message.get("content")
    if isinstance(content, str):
        return message | {"content": content.replace(text, str(other))}
    if not isinstance(content, list):
        return message
    parts: list[Json] = [
        part | {"text": said.replace(text, str(other))}
        if isinstance(part, dict) and isinstance(said := part.get("text"), str)
        else part
        for part in content
    ]
    return message | {"content": parts}


def _is_thinking(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "thinking"


def _leave_open(message: Message, escaper: ControlTokenEscaper) -> Message:
    """Return the last message with the end mark and a blank after its text. Raises RequestError.

    The mark is where `_cut_at_end` cuts (`continue_final_message`). The blank shows whether the template trims.
    """
    if message.get("tool_calls"):
        raise _cannot_continue("it ends with tool calls")
    ending = escaper.end_mark + " "
    content = message.get("content")
    if not isinstance(content, list):
        return message | {"content": f"{content or ''}{ending}"}
    parts: list[Json] = list(content)
    last = next(
        (part for part in reversed(parts) if isinstance(part, dict) and isinstance(part.get("text"), str)), None
    )
    if last is None:
        return message | {"content": [*parts, {"type": "text", "text": ending}]}
    return message | {
        "content": [part | {"text": f"{part['text']}{ending}"} if part is last else part for part in parts]
    }


def _cut_at_end(text: str, message: Message, escaper: ControlTokenEscaper) -> str:
    """Cut rendered text at the end of its last message, as transformers does. Raises RequestError.

    A message with open reasoning and no content ends with the reasoning. White space that the template would have
    trimmed is cut too.
    """
    place = text.rfind(escaper.end_mark)
    if place < 0:
        raise _cannot_continue("the chat template changes it so that its end cannot be found")
    content = message["content"]
    written = "".join(_texts(content)).removesuffix(" ").removesuffix(escaper.end_mark)
    open_place = text.rfind(escaper.open_mark)
    if not written and open_place >= 0:
        return text[:open_place]
    after = place + len(escaper.end_mark)
    if text[after : after + 1] == " ":
        return text[:place]
    num_blanks = len(written) - len(written.rstrip())
    return text[: place - num_blanks] if not text[place - num_blanks : place].strip() else text[:place]


def _texts(content: Json) -> list[str]:
    """Return the text of each part of a message."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return [text for text in texts if isinstance(text, str)]
    return [content] if isinstance(content, str) else []


def _cannot_continue(reason: str) -> RequestError:
    message = f"continue_final_message cannot continue the last message: {reason}"
    return RequestError(ErrorCode.INVALID_VALUE, message, "messages")
