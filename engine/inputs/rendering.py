"""Template rendering in child processes that are killed when they exceed their time or memory.

The model's template and the templates of requests have separate pools, so that a request's template never delays
others. The children run `serve`; `LocalRenderer` runs it in this process, for tests. Why the model's own template runs
in a child too: docs/decisions/0005-templates-in-a-process.md.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from engine.api.errors import EngineError, ErrorCode, ModelLoadError, RequestError
from engine.api.request import Json, Message
from engine.inputs.preparation import describe_tools, prepare_messages
from engine.inputs.template import ChatTemplate, PromptTooLong
from engine.killable import KillableExceeded, KillablePool
from engine.slow_work import SlowWork

TARGET = "engine.inputs.rendering:serve"
POOL_SIZE = 3
MEMORY_BYTES = 512 << 20
REQUEST_TEMPLATE_S = 2.0
MODEL_TEMPLATE_S = 10.0
"""Longer, because the model's own template has been checked at load, and long conversations take time."""
NICENESS = 10
"""Applies to the templates of requests; the model's own template runs at full priority."""
CHECK, RENDER = "check", "render"


@dataclass(frozen=True, slots=True)
class RenderJob:
    """One conversation of a tenant to render."""

    messages: list[Message]
    variables: dict[str, Json]
    """Set by the server."""
    free: dict[str, Json] = field(default_factory=dict)
    """Set by the request; the template gets those that it uses."""
    tools: list[dict[str, Json]] = field(default_factory=list)
    max_chars: int = 0
    tenant: str = ""


class Renderer(Protocol):
    """A renderer for the model's template and for templates of requests. Thread-safe."""

    def check(self, source: str) -> None:
        """Check the model's template. Raises ModelLoadError if it cannot be used."""

    def render(self, source: str, job: RenderJob, *, is_models: bool) -> str | None:
        """Return the prompt text, None if it has more than `job.max_chars`. Raises RequestError."""

    def close(self) -> None:
        """Release the processes. Idempotent."""


class KillableRenderer:
    """A renderer in child processes, which are started on first use."""

    def __init__(self, work: SlowWork) -> None:
        self._for_model = KillablePool(TARGET, POOL_SIZE, MEMORY_BYTES)
        self._for_requests = KillablePool(TARGET, POOL_SIZE, MEMORY_BYTES, niceness=NICENESS, work=work)

    def check(self, source: str) -> None:
        other = threading.Thread(target=self._warm_other, args=(source,), name="template-warm", daemon=True)
        other.start()
        try:
            self._for_model.call(CHECK, source, timeout_s=MODEL_TEMPLATE_S)
        except RequestError as error:
            raise ModelLoadError(f"the model cannot be served: {error.message}") from error
        except KillableExceeded as error:
            limit = f"{MODEL_TEMPLATE_S:g} s" if error.reason == "time" else f"{MEMORY_BYTES >> 20} MiB"
            raise ModelLoadError(
                f"the model cannot be served: its chat template needs more than {limit} to say hello"
            ) from error
        finally:
            other.join()

    def _warm_other(self, source: str) -> None:
        """Start a second process in advance, so that two requests at once need not wait for one to start."""
        with contextlib.suppress(EngineError, KillableExceeded):
            self._for_model.call(CHECK, source, timeout_s=MODEL_TEMPLATE_S)

    def render(self, source: str, job: RenderJob, *, is_models: bool) -> str | None:
        pool, timeout_s = (self._for_model, MODEL_TEMPLATE_S) if is_models else (self._for_requests, REQUEST_TEMPLATE_S)
        param = "messages" if is_models else "chat_template"
        try:
            text: str | None = pool.call(RENDER, source, *_packed(job), param, timeout_s=timeout_s, tenant=job.tenant)
        except KillableExceeded as error:
            limit = f"{timeout_s:g} s" if error.reason == "time" else f"{MEMORY_BYTES >> 20} MiB"
            remedy = "send fewer or shorter messages" if is_models else "send a simpler template, or fewer messages"
            message = f"the chat template needs more than {limit} for these messages; {remedy}"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param) from error
        return text

    def close(self) -> None:
        self._for_model.close()
        self._for_requests.close()


class LocalRenderer:
    """A renderer in this process, without bounds on time and memory."""

    def check(self, source: str) -> None:
        try:
            serve(CHECK, source)
        except RequestError as error:
            raise ModelLoadError(f"the model cannot be served: {error.message}") from error

    def render(self, source: str, job: RenderJob, *, is_models: bool) -> str | None:
        text: str | None = serve(RENDER, source, *_packed(job), "messages" if is_models else "chat_template")
        return text

    def close(self) -> None:
        return


def serve(action: str, source: str, *arguments: Any) -> str | None:
    """Serve one call in the child: check a template, or render a job with it. Raises RequestError."""
    if action == CHECK:
        ChatTemplate(source).probe()
        return None
    messages, variables, free, tools, max_chars, param = arguments
    return _render(_compiled(source, param), RenderJob(messages, variables, free, tools, max_chars))


def _packed(job: RenderJob) -> tuple[Any, ...]:
    return job.messages, job.variables, job.free, job.tools, job.max_chars


@lru_cache(maxsize=8)
def _compiled(source: str, param: str) -> ChatTemplate:
    return ChatTemplate(source, param)


def _render(template: ChatTemplate, job: RenderJob) -> str | None:
    """Return the prompt text, None if it is too long. Raises RequestError, also for text that UTF-8 cannot encode."""
    try:
        text = _text(template, job)
        text.encode()
    except PromptTooLong:
        return None
    except UnicodeEncodeError:
        message = "the chat template makes text of half characters (surrogates), which no tokenizer reads"
        raise RequestError(ErrorCode.INVALID_VALUE, message, template.param) from None
    except RecursionError:
        raise RequestError(ErrorCode.INVALID_VALUE, "the messages are nested too deeply", "messages") from None
    return text


def _text(template: ChatTemplate, job: RenderJob) -> str:
    template.check_roles(job.messages)
    variables = job.variables | template.used(job.free)
    if template.knows_tools or not job.tools:
        variables["tools"] = job.tools or None
        messages = job.messages
    else:
        messages = _with_tools(template, job, variables)
    return template.render(prepare_messages(messages, template), variables, job.max_chars)


def _with_tools(template: ChatTemplate, job: RenderJob, variables: dict[str, Any]) -> list[Message]:
    """Describe the tools in the messages, for a template that does not show them.

    The description goes into the system message, unless the template refuses a system message that the request lacks.
    """
    described = describe_tools(job.messages, job.tools, in_system=True)
    if len(described) == len(job.messages) or not template.refuses(prepare_messages(described, template), variables):
        return described
    return describe_tools(job.messages, job.tools, in_system=False)
