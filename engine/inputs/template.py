"""A chat template: Jinja source to prompt text, in a sandbox, with the conventions of Hugging Face templates.

The conventions are those of transformers' `apply_chat_template`
(https://huggingface.co/docs/transformers/chat_templating): `tojson`, `raise_exception`, `strftime_now`, loop controls,
generation blocks, trimmed blocks. The source comes from the model's files or from a request and is not trusted: the
sandbox is immutable, the output is bounded, and compiling and rendering run in a killable process (rendering.py). Knows
nothing of tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from engine.api.errors import ErrorCode, RequestError
from engine.api.prompt_size import MAX_PROMPT_CHARS
from engine.api.request import Message

MAX_POWER_BITS = 4096
MAX_MESSAGE_CHARS = 200
"""At most this much of a template's own message reaches the client."""

KNOWN_ROLES = ("system", "developer", "user", "assistant", "tool")
"""Roles that every template gets. `function` has become `tool` before."""

RESERVED = frozenset({"self", "messages", "tools", "documents", "add_generation_prompt", "continue_final_message"})
"""Variables that the variables of a request never replace."""

ATTRIBUTE_FILTERS = frozenset({"attr", "map", "selectattr", "rejectattr", "groupby", "sort", "sum", "unique"})
HARMONY_MARKER = "<|channel|>"
PROBE: list[Message] = [{"role": "user", "content": "Hello"}]

_WIDE_FORMAT = re.compile(r"%[^a-zA-Z%]*(\d{4}|\*)")
_INTERNAL_NAME = re.compile(r"__\w+__")
_INTERNALS = re.compile(r"( at 0x[0-9a-fA-F]+)|(\b(?:jinja2|engine|builtins)(?:\.\w+)+)")
_INDIGESTIBLE = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)


class PromptTooLong(Exception):
    """The rendered text grew beyond the bound."""


class TemplateRefusal(jinja2.TemplateError):
    """The template called `raise_exception`: it refuses these messages."""


class ChatTemplate:
    """A compiled template, and the form of messages that it expects.

    names                   the variables that it looks up
    takes_parts             it loops over `message.content`, so content is a list of parts
    takes_thinking_parts    reasoning is such a part
    knows_developer         it handles the role `developer`; `knows_tools`, `knows_calls` likewise
    is_harmony              it writes harmony channels
    param                   the request field that its refusals name
    """

    def __init__(self, source: str, param: str = "messages") -> None:
        """Compile the source. Raises RequestError if it is not a template or uses internal names of Python."""
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock])
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        self.param = param
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
            self.names = frozenset(meta.find_undeclared_variables(tree))
        except (jinja2.TemplateError, *_INDIGESTIBLE) as error:
            raise self._refused(f"the chat template cannot be compiled: {_clean(str(error))}") from error
        attributes = set(_attributes(tree))
        internal = next(filter(_INTERNAL_NAME.fullmatch, sorted(attributes)), None)
        if internal is not None:
            reason = f"it reaches for {internal[:MAX_MESSAGE_CHARS]}, which no template may"
            raise self._refused(f"the chat template cannot be used: {reason}")
        constants = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
        self._constants = constants
        self.takes_parts = _loops_over_content(tree)
        self.takes_thinking_parts = (
            self.takes_parts and "thinking" in constants and not {"reasoning", "reasoning_content"} & attributes
        )
        self.knows_developer = "developer" in constants
        self.knows_tools = "tools" in self.names
        self.knows_calls = "tool_calls" in attributes | constants
        self.is_harmony = HARMONY_MARKER in source

    def check_roles(self, messages: list[Message]) -> None:
        """Raise RequestError for a role that the template does not name.

        The template would drop such a message, or write a role that the model does not know.
        """
        for index, message in enumerate(messages):
            role = message.get("role")
            if role not in KNOWN_ROLES and (not role or role not in self._constants):
                known = f"must be one of {', '.join(KNOWN_ROLES)}, function, or a role that the chat template names"
                path = f"messages.{index}.role"
                raise RequestError(
                    ErrorCode.INVALID_VALUE, f"{path} {known}; got {str(role)[:MAX_MESSAGE_CHARS]!r}", path
                )

    def probe(self) -> None:
        """Render the shortest conversation. Raises RequestError if the sandbox stops it.

        The template itself may refuse the conversation.
        """
        num_chars = 0
        try:
            for piece in self._generate(PROBE, {"add_generation_prompt": True, "tools": None, "documents": None}):
                num_chars += len(piece)
                if num_chars > MAX_PROMPT_CHARS:
                    raise SecurityError("its text grows without end")
        except SecurityError as error:
            raise self._refused(f"the chat template cannot be used: {_clean(str(error))}") from error
        except (jinja2.TemplateError, *_INDIGESTIBLE):
            return

    def render(self, messages: list[Message], variables: Mapping[str, Any], max_chars: int = MAX_PROMPT_CHARS) -> str:
        """Render to prompt text.

        Raises PromptTooLong beyond `max_chars`, and RequestError, with the template's own message, if the template
        refuses the messages or fails on them.
        """
        pieces: list[str] = []
        num_chars = 0
        try:
            for piece in self._generate(messages, variables):
                num_chars += len(piece)
                if num_chars > max_chars:
                    raise PromptTooLong
                pieces.append(piece)
        except jinja2.TemplateError as error:
            raise self._refused(
                f"the chat template refuses the messages: {_clean(error.message or 'no reason given')}"
            ) from error
        except _INDIGESTIBLE as error:
            raise self._refused("the chat template refuses the messages: it cannot be applied to them") from error
        return "".join(pieces)

    def refuses(self, messages: list[Message], variables: Mapping[str, Any]) -> bool:
        """Return True if the template itself refuses these messages (`raise_exception`)."""
        try:
            for _ in self._generate(messages, variables):
                pass
        except TemplateRefusal:
            return True
        except (jinja2.TemplateError, *_INDIGESTIBLE):
            return False
        return False

    def used(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request's variables that the template looks up, without reserved ones."""
        return {name: value for name, value in variables.items() if name in self.names and name not in RESERVED}

    def _generate(self, messages: list[Message], variables: Mapping[str, Any]) -> Iterator[str]:
        # NOTE: one positional dictionary: as keywords, a request's variables could set arguments of Jinja's own.
        return self._template.generate({**variables, "messages": messages})

    def _refused(self, reason: str) -> RequestError:
        return RequestError(ErrorCode.INVALID_VALUE, reason, self.param)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with bounds on powers, repeated texts and wide formats, which could exhaust memory."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        sequence, number = (right, left) if isinstance(left, int) else (left, right)
        if (
            operator == "**"
            and isinstance(left, int)
            and isinstance(right, int)
            and left.bit_length() * right > MAX_POWER_BITS
        ):
            raise SecurityError("a power is too large")
        if (
            operator == "*"
            and isinstance(sequence, str | list | tuple)
            and len(sequence) * max(number, 0) > MAX_PROMPT_CHARS
        ):
            raise SecurityError("a repeated text is too long")
        if operator == "%" and isinstance(left, str) and _WIDE_FORMAT.search(left):
            raise SecurityError("a format is too wide")
        return super().call_binop(context, operator, left, right)


class _GenerationBlock(Extension):
    """The tag `{% generation %}`, which marks assistant text for training; for prompts only its content counts."""

    tags = {"generation"}  # noqa: RUF012 - the type Jinja declares

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Write JSON as transformers does: without the HTML escapes of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: object) -> None:
    raise TemplateRefusal(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _clean(reason: str) -> str:
    """Remove addresses and names of modules from a template's message, and bound it."""
    return _INTERNALS.sub("", reason[: 4 * MAX_MESSAGE_CHARS])[:MAX_MESSAGE_CHARS]


def _attributes(tree: nodes.Template) -> Iterator[str]:
    """Yield every name that the source looks up on a value."""
    for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Filter)):
        if isinstance(node, nodes.Getattr):
            yield node.attr
        elif isinstance(node, nodes.Getitem):
            yield from _strings([node.arg])
        elif isinstance(node, nodes.Filter) and node.name in ATTRIBUTE_FILTERS:
            yield from _strings([*node.args, *(pair.value for pair in node.kwargs)])


def _strings(expressions: list[nodes.Expr]) -> Iterator[str]:
    for expression in expressions:
        if isinstance(expression, nodes.Const) and isinstance(expression.value, str):
            yield expression.value


def _loops_over_content(tree: nodes.Template) -> bool:
    """Return True if a `for` runs over `.content`, directly, through filters, or through a variable set to it."""
    assigns = [assign for assign in tree.find_all(nodes.Assign) if isinstance(assign.target, nodes.Name)]
    # The ignored type: the line above has checked that each target is a Name.
    names = {assign.target.name for assign in assigns if _is_content(assign.node, set())}  # type: ignore[attr-defined]
    return any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For))


def _is_content(expression: nodes.Node, names: set[str]) -> bool:
    while isinstance(expression, nodes.Filter) and expression.node is not None:
        expression = expression.node
    if isinstance(expression, nodes.Name):
        return expression.name in names
    if isinstance(expression, nodes.Getitem):
        return isinstance(expression.arg, nodes.Const) and expression.arg.value == "content"
    return isinstance(expression, nodes.Getattr) and expression.attr == "content"
