"""Constraints are compiled in killable processes and cached within a bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.api import ErrorCode, GenerationRequest, RequestError, Tool, ToolChoice, ToolMode
from engine.api.constraint import Constraint, ConstraintKind
from engine.config import StructuredLimits
from engine.killable import KillableExceeded
from engine.messages import DefineGrammar, ForgetGrammars
from engine.structured.child_task import check_tool_schema, check_unenforced
from engine.structured.compiler import DEFAULT_LIMITS, GRAMMAR_BYTES, ConstraintCompiler
from engine.structured.registry import AnswerGrammars


def constant(value):
    return Constraint(ConstraintKind.JSON_SCHEMA, json.dumps({"const": value}))


class ScriptedPool:
    """A pool without processes: it answers each call as scripted, by default with a payload of a hundred bytes."""

    def __init__(self):
        self.calls = []
        self.answers = []

    def call(self, *arguments, timeout_s, tenant):
        self.calls.append(arguments)
        answer = self.answers.pop(0) if self.answers else ("llguidance", b"x" * 100)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def compiler():
    made = ConstraintCompiler(Path("model.gguf"), StructuredLimits(cache_bytes=10 * (GRAMMAR_BYTES + 100)))
    made._pool = made._xgrammar_pool = ScriptedPool()
    return made


def test_equal_constraints_are_compiled_once(compiler):
    first = compiler.compile(constant(1))
    assert compiler.compile(constant(1)) is first
    assert len(compiler._pool.calls) == 1
    others = [
        constant(2),
        Constraint(ConstraintKind.JSON_SCHEMA, constant(1).source, whitespace="[ ]?"),
        Constraint(ConstraintKind.JSON_SCHEMA, constant(1).source, closes_objects=False),
        Constraint(ConstraintKind.REGEX, constant(1).source),
    ]
    assert len({compiler.compile(other).key for other in others} | {first.key}) == 5


def test_ten_thousand_constraints_stay_within_the_bound_of_the_cache(compiler):
    keys = [compiler.compile(constant(number)).key for number in range(10_000)]
    assert [key for key in keys if compiler.has(key)] == keys[-10:]
    assert compiler.take_evicted() == keys[:-10]
    assert compiler.take_evicted() == []


def test_a_constraint_that_timed_out_is_not_compiled_again(compiler):
    compiler._pool.answers = [KillableExceeded("time"), KillableExceeded("memory")]
    for _ in range(3):
        with pytest.raises(RequestError, match="5 s") as caught:
            compiler.compile(constant("slow"))
        assert caught.value.param == "structured_outputs"
    assert len(compiler._pool.calls) == 1
    with pytest.raises(RequestError, match="512 MiB"):
        compiler.compile(constant("large"))
    assert compiler.compile(constant("good")).backend == "llguidance"


def test_a_constraint_that_timed_out_is_retried_with_back_off(compiler):
    """A time-out on a busy machine was remembered for good."""
    times = [0.0]
    compiler._clock = lambda: times[0]
    compiler._pool.answers = [KillableExceeded("time")] * 3 + [KillableExceeded("memory")]
    children = []
    for times[0] in range(100):
        with pytest.raises(RequestError):
            compiler.compile(constant("slow"))
        children.append(len(compiler._pool.calls))
    assert [children.index(number) for number in (1, 2, 3, 4)] == [0, 10, 30, 70]
    times[0] = 1e9  # memory use does not change with load
    with pytest.raises(RequestError, match="512 MiB"):
        compiler.compile(constant("slow"))
    compiler._pool.answers = [KillableExceeded("time")]
    with pytest.raises(RequestError):
        compiler.compile(constant("busy"))
    times[0] += 11
    assert compiler.compile(constant("busy")) is compiler.compile(constant("busy"))


def test_a_recursive_grammar_is_compiled_by_the_xgrammar_process(compiler):
    compiler._pool.answers = [("ebnf", b"root ::= r0"), b"compiled"]
    grammar = compiler.compile(Constraint(ConstraintKind.GRAMMAR, 'root ::= "(" root ")" | "x"'))
    assert (grammar.backend, grammar.payload) == ("xgrammar", b"compiled")
    assert compiler._pool.calls[1][1] == "root ::= r0"


def test_a_grammar_is_sent_once_to_each_core():
    forms = AnswerGrammars(Path("model.gguf"), None, StructuredLimits(cache_bytes=GRAMMAR_BYTES))
    forms._compiler._pool = ScriptedPool()
    first, second = forms._compiler.compile(constant(1)), forms._compiler.compile(constant(2))
    assert forms.definitions(first) == [first]
    assert forms.evictions(first) == [ForgetGrammars([first.key])]  # the cache holds one, and that is the second
    assert forms.definitions(second) == [second]
    assert forms.definitions(second) == []
    assert forms.evictions(second) == []
    forms.forget_all()
    assert forms.definitions(second) == [second]
    third = forms._compiler.compile(constant(3))
    assert forms.definitions(third) == [ForgetGrammars([second.key]), third]
    assert forms.definitions(None) == forms.evictions(None) == []


@pytest.mark.parametrize("mode", ToolMode)
def test_tool_schemas_are_checked_for_every_tool_choice(mode):
    """With tool_choice none they were shown to the model unchecked."""
    forms = AnswerGrammars(Path("model.gguf"), None)
    forms._compiler._pool = pool = ScriptedPool()
    tools = (Tool("now"), Tool("add", {"type": "object"}))
    forms.grammar(GenerationRequest("r", "m", (), 0.0, tools=tools, tool_choice=ToolChoice(mode, ("add",))))
    assert pool.calls[0] == ("check_schemas", [('{"type": "object"}', "tools.1.function.parameters")])
    forms.grammar(GenerationRequest("r", "m", (), 0.0, tools=tools[:1]))
    assert not any(call[0] == "check_schemas" for call in pool.calls[1:])


@pytest.mark.parametrize("mode", [ToolMode.REQUIRED, ToolMode.NAMED])
def test_a_response_format_beside_a_forced_call_is_checked(mode):
    """It was not checked."""
    forms = AnswerGrammars(Path("model.gguf"), None)
    forms._compiler._pool = pool = ScriptedPool()
    pool.answers = [RequestError(ErrorCode.INVALID_VALUE, "no schema", "response_format")]
    constraint = Constraint(ConstraintKind.JSON_SCHEMA, '{"type":"foo"}', "response_format")
    choice = ToolChoice(mode, ("now",))
    with pytest.raises(RequestError, match="no schema"):
        forms.grammar(
            GenerationRequest("r", "m", (), 0.0, tools=(Tool("now"),), tool_choice=choice, constraint=constraint)
        )
    assert pool.calls == [("check", "json_schema", '{"type":"foo"}', "response_format")]


LOST = '{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"c":{}}}'


def test_a_dangling_reference_is_refused_even_in_unenforced_schemas():
    with pytest.raises(RequestError, match="leads nowhere") as caught:
        check_tool_schema(LOST, DEFAULT_LIMITS, "tools.0.function.parameters")
    assert caught.value.param == "tools.0.function.parameters"
    check_tool_schema(LOST.replace('"c"', '"b"'), DEFAULT_LIMITS, "tools.0.function.parameters")


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("json_schema", LOST),
        ("json_schema", '{"type":"foo"}'),
        ("json_schema", "[]"),
        ("structural_tag", '{"type":"structural_tag"}'),
    ],
)
def test_an_unenforced_source_must_still_be_a_valid_schema_or_tag(kind, source):
    with pytest.raises(RequestError) as caught:
        check_unenforced(DEFAULT_LIMITS, kind, source, "response_format")
    assert caught.value.param == "response_format"
    check_unenforced(DEFAULT_LIMITS, "json_schema", '{"not":{}}', "response_format")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Return a compiler over real processes, with the tiny vocabulary and half a second per constraint."""
    from tests.engine.tiny_tokenizer import tiny_tokenizer

    folder = tmp_path_factory.mktemp("tiny")
    tiny_tokenizer().backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    made = ConstraintCompiler(folder, StructuredLimits(compile_timeout_s=0.5))
    yield made
    made.close()


@pytest.mark.slow
def test_processes_compile_refuse_and_are_killed(real):
    """The slow constraint has five thousand optional properties."""
    assert isinstance(real.compile(constant("warm")), DefineGrammar)
    many = {
        "type": "object",
        "properties": {f"p{number}": {"type": "integer"} for number in range(5_000)},
        "additionalProperties": False,
    }
    with pytest.raises(RequestError, match="longer to compile"):
        real.compile(Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(many), "response_format"))
    with pytest.raises(RequestError, match="two stars|multiple repeat"):
        real.compile(Constraint(ConstraintKind.REGEX, "foo**"))
    assert real.compile(constant("after")).payload


@pytest.mark.slow
def test_tools_are_checked_in_a_process(real):
    real.check_tool_schemas([('{"type":"object","not":{}}', "tools.0.function.parameters")])
    real.check_tool_schemas([('{"properties":{"a":{"maxLength":524288}}}', "tools.0.function.parameters")])
    for text in ('{"type":"foo"}', '{"type":"string"}', "[]", '{"properties":{"a":{"pattern":5}}}', "{" * 1_000):
        with pytest.raises(RequestError) as caught:
            real.check_tool_schemas([("true", "tools.0.function.parameters"), (text, "tools.1.function.parameters")])
        assert caught.value.param == "tools.1.function.parameters"
