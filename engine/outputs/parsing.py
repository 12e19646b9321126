"""Chooses the output parsers of a model, of a run and of a choice.

Names are resolved once, when the model is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import GenerationRequest, ToolMode
from engine.messages import Thinking
from engine.outputs.pieces import OutputParser
from engine.outputs.reasoning.formats import HARMONY, ReasoningFormat
from engine.outputs.reasoning.parser import ReasoningParser, ReasoningState
from engine.outputs.reasoning.prompt import harmony_head, prompt_reasoning_state
from engine.outputs.reasoning.registry import AUTO, NONE, make_reasoning_parser, marker_spellings
from engine.outputs.reasoning.registry import reasoning_format as resolve_reasoning_format
from engine.outputs.tools.call_ids import CallIdStyle, call_id
from engine.outputs.tools.forced import NamedCallReader, RequiredCallsReader
from engine.outputs.tools.registry import DEFAULT, check_tool_parser, choose_tool_parser, make_tool_parser, tool_format
from engine.tokenizers.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

UNLIMITED = -1

MakeReasoning = Callable[[], ReasoningParser]


@dataclass(frozen=True, slots=True)
class ChoiceParsers:
    """The parsers of one choice: of its reasoning and of its tool calls, where it has any."""

    reasoning: ReasoningParser | None = None
    calls: OutputParser | None = None
    mode: ToolMode = ToolMode.NONE
    takes_one_call: bool = False
    """The choice ends after its first call."""
    make_call_id: Callable[[int, str], str] = lambda index, name: ""
    reasoning_ids: frozenset[int] = frozenset()
    """Special tokens that the reasoning parser reads."""
    call_ids: frozenset[int] = frozenset()
    """Special tokens that the parser of calls reads."""

    def control_ids(self, reasoning: ReasoningParser | None) -> frozenset[int]:
        """Return the special tokens that are read now. `reasoning`: its parser, None once reasoning is over."""
        if reasoning is None:
            return self.call_ids
        return self.reasoning_ids if reasoning.is_open else self.reasoning_ids | self.call_ids


@dataclass(frozen=True, slots=True)
class RunParsing:
    """The parsers of one run."""

    make_choice: Callable[[int], ChoiceParsers]
    """Makes the parsers of a choice by its number."""
    thinking: Thinking | None = None
    """The markers for the core, None if the core need not follow the reasoning."""


class OutputParsing:
    """The parsers of one model. Thread-safe.

    `reasoning_format` and `tool_format` say how it marks reasoning and calls; None if that is unknown or turned off.
    `reasoning_parser` and `tool_parser` are their names.
    """

    def __init__(self, tokenizer: Tokenizer, tool_parser: str, reasoning_parser: str) -> None:
        """Resolve the names. Raises ModelLoadError for an unknown parser, or one whose markers the vocabulary lacks."""
        self._tokenizer = tokenizer
        self.tool_parser = self._resolve_tool_parser(tool_parser)
        self.tool_format = (
            tool_format(self.tool_parser, tokenizer.backend.token_to_id) if self.tool_parser != NONE else None
        )
        self.reasoning_format = format = resolve_reasoning_format(reasoning_parser, tokenizer)
        self._start_spellings = marker_spellings(format.starts, tokenizer) if format else []
        self._end_spellings = marker_spellings(format.sure_ends, tokenizer) if format else []
        self.reasoning_parser = format.name if format else NONE
        logger.info("calls are read as %s, reasoning as %s", self.tool_parser, self.reasoning_parser)

    def check(self, request: GenerationRequest) -> None:
        """Refuse a request that needs a parser this model does not have. Raises RequestError."""
        if request.tools and request.tool_choice.mode is ToolMode.AUTO and self.tool_format is None:
            raise RequestError(
                ErrorCode.UNSUPPORTED_PARAMETER,
                "tool_choice must not be auto: the server has no parser for the calls of this model; "
                "use none, required or a named tool",
                "tool_choice",
            )
        if request.thinking_token_budget is not None and self.reasoning_format is None:
            raise RequestError(
                ErrorCode.UNSUPPORTED_PARAMETER,
                "thinking_token_budget needs a model whose reasoning has an end marker, "
                "and the server knows of none for this model; leave the field out",
                "thinking_token_budget",
            )
        if request.thinking_token_budget is not None and request.raw is not None:
            raise RequestError(
                ErrorCode.UNSUPPORTED_PARAMETER,
                "thinking_token_budget needs messages: "
                "what follows a raw prompt is text, in which no reasoning is looked for",
                "thinking_token_budget",
            )

    def plan(self, request: GenerationRequest, prompt_ids: list[int]) -> RunParsing:
        """Choose the parsers for the answers to this prompt. After a raw prompt, no reasoning is looked for."""
        format = self.reasoning_format
        if format is None or request.raw is not None:
            return RunParsing(partial(self._choice_parsers, request, None))
        state = prompt_reasoning_state(format, self._tokenizer, request, prompt_ids)
        head = harmony_head(self._tokenizer, prompt_ids) if format.name == HARMONY else ""
        keeps_calls = self.tool_format is not None and bool(request.tools) and request.tool_choice.mode is ToolMode.AUTO
        make_reasoning = partial(make_reasoning_parser, format, state, keeps_calls=keeps_calls, head=head)
        thinking = self._thinking(format, state, request) if _follows_reasoning(request) else None
        return RunParsing(partial(self._choice_parsers, request, make_reasoning), thinking)

    def _choice_parsers(
        self, request: GenerationRequest, make_reasoning: MakeReasoning | None, choice: int
    ) -> ChoiceParsers:
        reasoning = make_reasoning() if make_reasoning else None
        calls = self._call_parser(request)
        style = self.tool_format.id_style if self.tool_format else CallIdStyle.DEFAULT
        mode = request.tool_choice.mode
        return ChoiceParsers(
            reasoning=reasoning,
            calls=calls,
            mode=mode,
            takes_one_call=mode is ToolMode.AUTO and not request.tool_choice.is_parallel,
            make_call_id=partial(call_id, style, request.run_id, choice),
            reasoning_ids=self._special_ids(reasoning),
            call_ids=self._special_ids(calls),
        )

    def _call_parser(self, request: GenerationRequest) -> OutputParser | None:
        names = request.tool_choice.names
        match request.tool_choice.mode:
            case ToolMode.AUTO if request.tools:
                tools = request.tools
                if request.constraint is not None:
                    # The grammar confines calls to their tags; JSON outside the tags is the answer.
                    tools = tuple(replace(tool, is_strict=True) for tool in tools)
                return make_tool_parser(self.tool_parser, tools, names)
            case ToolMode.REQUIRED:
                return RequiredCallsReader(frozenset(names or (tool.name for tool in request.tools)))
            case ToolMode.NAMED:
                return NamedCallReader(names[0])
        return None

    def _resolve_tool_parser(self, name: str) -> str:
        """Return the parser's name; for "auto" that of the template or family, or the default if its markers are
        missing.
        """
        if name == NONE:
            return NONE
        find_token = self._tokenizer.backend.token_to_id
        if name != AUTO:
            check_tool_parser(name, find_token)
            return name
        chosen = choose_tool_parser(self._tokenizer.chat_template, self._tokenizer.architecture, find_token)
        return chosen if all(find_token(text) is not None for text in tool_format(chosen).special) else DEFAULT

    def _thinking(self, format: ReasoningFormat, state: ReasoningState, request: GenerationRequest) -> Thinking | None:
        if state is ReasoningState.CLOSED:
            return None
        is_open = state is ReasoningState.OPEN or not format.needs_start
        budget = request.thinking_token_budget
        (start_ids, *other_starts), (end_ids, *other_ends) = self._start_spellings, self._end_spellings
        return Thinking(start_ids, end_ids, is_open, None if budget == UNLIMITED else budget, other_starts, other_ends)

    def _special_ids(self, parser: OutputParser | None) -> frozenset[int]:
        """Return the special tokens among the texts that a parser reads."""
        texts = parser.control_texts if parser else ()
        ids = (self._tokenizer.backend.token_to_id(text) for text in texts)
        return frozenset(token_id for token_id in ids if token_id is not None and self._tokenizer.is_special(token_id))


def _follows_reasoning(request: GenerationRequest) -> bool:
    """Return True if the core must know where reasoning ends: to force the end, or to start a grammar after it."""
    budget = request.thinking_token_budget
    has_grammar = request.constraint is not None or request.tool_choice.mode in (ToolMode.REQUIRED, ToolMode.NAMED)
    return budget not in (None, UNLIMITED) or has_grammar or any(tool.is_strict for tool in request.tools)
