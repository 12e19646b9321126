"""The forms that answers must have, in the worker: a grammar for each request that asks for one, and which of them the core knows.

Held by `engine.engine`: `grammar` is called by any thread, the rest with the engine's lock held.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from engine.api.errors import RequestError
from engine.api.request import GenerationRequest
from engine.api.tools import ToolMode
from engine.messages import DefineGrammar, ForgetGrammars
from engine.slow_work import SlowWork
from engine.structured.compiler import ConstraintCompiler
from engine.structured.limits import DEFAULT_LIMITS, StructuredLimits
from engine.structured.tags.tools_schema import ToolFormat, answer_constraint, blamed, tool_schemas


class AnswerGrammars:
    """Of one model; `tool_format`: what its parser of calls says of itself."""

    def __init__(
        self,
        model_path: Path,
        tool_format: ToolFormat | None,
        limits: StructuredLimits = DEFAULT_LIMITS,
        work: SlowWork | None = None,
    ) -> None:
        """`work`: the slow work of the worker."""
        self._compiler = ConstraintCompiler(model_path, limits, work=work)
        self._tool_format = tool_format
        self._known: set[str] = set()

    def warm(self) -> None:
        """Make the first constraint wait less; costs half a second of one core, in the background."""
        self._compiler.warm()

    def grammar(self, request: GenerationRequest) -> DefineGrammar | None:
        """What the answer must be, None if anything. Raises RequestError, which names the field at fault.

        Schemas of tools are checked whatever the choice: they are shown to the model even where it may call none. So is the response
        format beside a forced call, which goes before it.
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

    def before(self, grammar: DefineGrammar | None) -> list[DefineGrammar | ForgetGrammars]:
        """What the core must hear before sequences that name this grammar."""
        evicted = [key for key in self._compiler.take_evicted() if key in self._known]
        self._known.difference_update(evicted)
        messages: list[DefineGrammar | ForgetGrammars] = [ForgetGrammars(evicted)] if evicted else []
        if grammar is not None and grammar.key not in self._known:
            self._known.add(grammar.key)
            messages.append(grammar)
        return messages

    def after(self, grammar: DefineGrammar | None) -> list[ForgetGrammars]:
        """What it must hear after them: a grammar that the cache has dropped meanwhile is not kept in the core either."""
        if grammar is None or self._compiler.has(grammar.key):
            return []
        self._known.discard(grammar.key)
        return [ForgetGrammars([grammar.key])]

    def restart(self) -> None:
        """A new core knows nothing."""
        self._known.clear()

    def close(self) -> None:
        """End the helper processes. Idempotent."""
        self._compiler.close()
