"""The grammars of answers in the worker: one for each request with a constraint, and which of them the core knows.

`engine.engine` holds this. Any thread may call `grammar`; the engine's lock protects the rest.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from engine.api.errors import RequestError
from engine.api.request import GenerationRequest, ToolMode
from engine.config import StructuredLimits
from engine.messages import DefineGrammar, ForgetGrammars
from engine.slow_work import SlowWork
from engine.structured.compiler import DEFAULT_LIMITS, ConstraintCompiler
from engine.structured.tags.tools_schema import ToolFormat, answer_constraint, blamed, tool_schemas


class AnswerGrammars:
    """The grammars of one model's answers. `tool_format` describes the format of its parser of calls."""

    def __init__(
        self,
        model_path: Path,
        tool_format: ToolFormat | None,
        limits: StructuredLimits = DEFAULT_LIMITS,
        work: SlowWork | None = None,
    ) -> None:
        """Create the registry. `work` is the worker's slow work."""
        self._compiler = ConstraintCompiler(model_path, limits, work=work)
        self._tool_format = tool_format
        self._known: set[str] = set()

    def warm(self) -> None:
        """Shorten the wait of the first constraint. Costs half a second of one core, in the background."""
        self._compiler.warm()

    def grammar(self, request: GenerationRequest) -> DefineGrammar | None:
        """Return the grammar of a request's answer, None if it is free. Raises RequestError that names the field at
        fault.

        Schemas of tools are checked whatever the choice is, as the model sees them even if it may call none. So is the
        response format beside a forced call, which has precedence.
        """
        if any(tool.parameters is not None for tool in request.tools):
            self._compiler.check_tool_schemas(tool_schemas(request.tools), request.tenant)
        constraint = answer_constraint(request, self._tool_format)
        if request.constraint is not None and request.tool_choice.mode in (ToolMode.REQUIRED, ToolMode.NAMED):
            self._compiler.check(request.constraint, request.tenant)
        if constraint is None:
            return None
        try:
            return self._compiler.compile(constraint, request.tenant)
        except RequestError as error:
            if constraint.param != "tools":
                raise
            raise blamed(error, request, partial(self._compiler.compile, tenant=request.tenant)) from error

    def definitions(self, grammar: DefineGrammar | None) -> list[DefineGrammar | ForgetGrammars]:
        """Return the messages that the core needs before sequences with this grammar."""
        evicted = [key for key in self._compiler.take_evicted() if key in self._known]
        self._known.difference_update(evicted)
        messages: list[DefineGrammar | ForgetGrammars] = [ForgetGrammars(evicted)] if evicted else []
        if grammar is not None and grammar.key not in self._known:
            self._known.add(grammar.key)
            messages.append(grammar)
        return messages

    def evictions(self, grammar: DefineGrammar | None) -> list[ForgetGrammars]:
        """Return the messages that the core needs after them.

        It drops a grammar that the cache has dropped meanwhile.
        """
        if grammar is None or self._compiler.has(grammar.key):
            return []
        self._known.discard(grammar.key)
        return [ForgetGrammars([grammar.key])]

    def forget_all(self) -> None:
        """Note that a new core knows no grammar."""
        self._known.clear()

    def close(self) -> None:
        """End the helper processes. Idempotent."""
        self._compiler.close()
