"""A chat template: Jinja source to prompt text, in a sandbox, with the conventions of Hugging Face templates.

The conventions are those of transformers' `apply_chat_template` (https://huggingface.co/docs/transformers/chat_templating): `tojson`,
`raise_exception`, `strftime_now`, loop controls, generation blocks, trimmed blocks. The source comes from the model's files, so it
is not trusted: immutable sandbox, bounded output. Knows nothing of tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from engine.api.errors import ErrorCode, ModelLoadError, RequestError
from engine.api.request import Message

MAX_OUTPUT_CHARS = 8_000_000
MAX_POWER_BITS = 4096
MAX_MESSAGE_CHARS = 200
"""What of a template's own message is repeated to the client."""


_WIDE_FORMAT = re.compile(r"%[^a-zA-Z%]*(\d{4}|\*)")


class PromptTooLong(Exception):
    """Rendering was cut off because the text grew beyond the bound."""


class TemplateRefusal(jinja2.TemplateError):
    """The template called `raise_exception`: it refuses these messages."""


class ChatTemplate:
    """One compiled template. `takes_parts`: it loops over `message.content`, so content is given as a list of parts."""

    def __init__(self, source: str) -> None:
        """Compile; raises ModelLoadError."""
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock])
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelLoadError(f"the model's chat template cannot be compiled: {error}") from error
        self.takes_parts = _loops_over_content(tree)
        self.knows_developer = any(constant.value == "developer" for constant in tree.find_all(nodes.Const))

    def render(self, messages: list[Message], variables: Mapping[str, Any], max_chars: int = MAX_OUTPUT_CHARS) -> str:
        """Render to prompt text. Raises RequestError with the template's own message if it refuses or cannot digest the
        messages, PromptTooLong beyond `max_chars`.
        """
        pieces: list[str] = []
        num_chars = 0
        try:
            for piece in self._template.generate(**variables, messages=messages):
                num_chars += len(piece)
                if num_chars > max_chars:
                    raise PromptTooLong
                pieces.append(piece)
        except jinja2.TemplateError as error:
            raise _refused(error.message or "no reason given") from error
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError, MemoryError) as error:
            raise _refused("the template cannot be applied to these messages") from error
        return "".join(pieces)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which multiplying and formatting cannot make a text beyond the bound either."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        sequence, number = (right, left) if isinstance(left, int) else (left, right)
        if operator == "**" and isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > MAX_POWER_BITS:
            raise SecurityError("a power is too large")
        if operator == "*" and isinstance(sequence, str | list | tuple) and len(sequence) * max(number, 0) > MAX_OUTPUT_CHARS:
            raise SecurityError("a repeated text is too long")
        if operator == "%" and isinstance(left, str) and _WIDE_FORMAT.search(left):
            raise SecurityError("a format is too wide")
        return super().call_binop(context, operator, left, right)


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; for prompts only its content counts."""

    tags = {"generation"}  # noqa: RUF012 - the type Jinja declares

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """As in transformers: no HTML escapes, unlike Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: object) -> None:
    raise TemplateRefusal(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _refused(reason: str) -> RequestError:
    message = f"the model's chat template refuses the messages: {reason[:MAX_MESSAGE_CHARS]}"
    return RequestError(ErrorCode.INVALID_VALUE, message, "messages")


def _loops_over_content(tree: nodes.Template) -> bool:
    """Whether a `for` runs over `.content`, directly, through filters, or through a variable set to it."""
    assigns = [assign for assign in tree.find_all(nodes.Assign) if isinstance(assign.target, nodes.Name)]
    names = {assign.target.name for assign in assigns if _is_content(assign.node, set())}  # type: ignore[attr-defined]  # checked above
    return any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For))


def _is_content(expression: nodes.Node, names: set[str]) -> bool:
    while isinstance(expression, nodes.Filter) and expression.node is not None:
        expression = expression.node
    if isinstance(expression, nodes.Name):
        return expression.name in names
    if isinstance(expression, nodes.Getitem):
        return isinstance(expression.arg, nodes.Const) and expression.arg.value == "content"
    return isinstance(expression, nodes.Getattr) and expression.attr == "content"
