"""EBNF and Lark: an answer is derived from the root, in either library."""

from __future__ import annotations

import json
import re

import pytest

from engine.api import RequestError
from engine.api.constraint import Constraint, ConstraintKind
from engine.structured.exchange import EBNF, LLGUIDANCE
from tests.engine.structured.walking import admits, compiled, template_of, walks

ARITHMETIC = 'root ::= sum\nsum ::= term ("+" term)*  # left to right\nterm ::= [0-9]+ | "(" sum ")"'
LARK_ARITHMETIC = """
// the same, with spaces
start: sum
sum: term (("+" | "-") term)*
?term: NUMBER | "(" sum ")" -> par
%import common.INT -> NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
"""
NESTED_LISTS = 'root ::= "[" (root ("," root)*)? "]"'
BALANCED = 'root ::= ("(" root ")")*'


def grammar(source):
    return Constraint(ConstraintKind.GRAMMAR, source, "structured_outputs.grammar")


@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        (
            'root ::= "a" [0-9]{2,3} (b | "é\\n")*\nb ::= "x"? [^a-z\\]]',
            ["a12", "a123é\n", "a12x!", "a12!"],
            ["a1", "a12]", "a12a"],
        ),
        ("root ::= 'it' | \"\\x41\\u00e9\\U0001F600\"", ["it", "Aé😀"], ["A"]),
        ('root ::= ""', [""], ["a"]),
        ('root ::= "a"{3} | "b"{2,}', ["aaa", "bb", "bbbb"], ["aa", "b"]),
        ("root ::= [a-c-]+ | [^-a]", ["a-c", "z"], ["", "-z"]),
        ('root ::= ("" | "a")* "b"', ["b", "aab"], ["a"]),
        (ARITHMETIC, ["1", "1+23", "(1+2)+3", "((7))"], ["", "1+", "(1", "+1"]),
        (NESTED_LISTS, ["[]", "[[],[[]]]"], ["[", "[,]"]),
        (BALANCED, ["", "()", "(())()"], ["(", ")("]),
        ('start: "a".."c" ("x"i | /[0-9]{2}/)~2..3 [B]\nB: "b"\n  | "c"', ["aX12", "bxxxc"], ["ax", "dxx"]),
        ("start: WORD (\",\" WORD)*\n%import common (WORD, DIGIT)", ["a,b"], ["a,", "1"]),
        (LARK_ARITHMETIC, ["1", " 1 + 2", "(1-2) + 3 "], ["1 +", "1 2"]),
        ('!root: "a" | /b+/i', ["a", "bBb"], ["c"]),
        ('start: "a" "b" /[c-d][0-9]/ "ef"i\n%ignore " "', ["abc1ef", " a b d2 EF "], ["abc 1ef", "abc1e f"]),
        ('start: AB "c"\nAB: "a" "b"\n%ignore /[ ]+/', ["abc", "ab c "], ["a bc"]),
    ],
)  # fmt: skip
def test_example_texts_are_derivable_or_not(source, right, wrong):
    template = template_of(grammar(source))
    assert [text for text in right if not admits(template, text)] == []
    assert [text for text in wrong if admits(template, text)] == []


@pytest.mark.parametrize(
    ("source", "is_right"),
    [
        (ARITHMETIC, lambda text: re.fullmatch(r"[0-9+()]+", text) and text.count("(") == text.count(")")),
        (NESTED_LISTS, lambda text: isinstance(json.loads(text), list)),
        (LARK_ARITHMETIC, lambda text: re.fullmatch(r"[0-9+\-() \t]+", text) and text.count("(") == text.count(")")),
    ],
)
def test_walks_end_in_derivable_texts(source, is_right):
    found = walks(template_of(grammar(source)), number=15, length=25)
    assert found
    assert all(is_right(text) for text in found)


def test_recursive_grammars_use_xgrammar_and_others_llguidance():
    assert compiled(grammar('root ::= a a\na ::= "x" | "y"'))[0] == LLGUIDANCE
    assert compiled(grammar(BALANCED))[0] == EBNF


def test_a_long_text_of_a_recursive_grammar_stays_followable():
    """Its cost per token must not grow with the text, as it would with a chart of all earlier characters."""
    matcher = template_of(grammar('root ::= "" | [a-z] root')).start()
    assert all(matcher.accept(ord("q")) for _ in range(5_000))
    assert matcher.can_end()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("start: x{y}", "templates"),
        ('start: "a"\n%declare X', "not supported"),
        ('start: "a"\n%import python.NAME', "common.NAME"),
        ("start: X\n%import common.NOTHING", "NOTHING"),
        ('start: ""', "empty string"),
        ('start: "a"\nstart: "b"', "twice"),
        ('start: start "a"', "left-recursive"),
        ("start: /(?=a)b/", "look-around"),
        ("root ::= [b-a]", "ends before"),
        ('root ::= "\\ud800"', "no character"),
        ("root ::= (", "missing"),
        ("root ::= [\\d]+", "not known"),
        ('start: "a\\w"', "not known"),
        ("root ::= @", "not understood"),
        ('root ::= "a"{3,2}', "ends before"),
        ('root ::= "a"\n) "b"', "where a rule should begin"),
    ],
)
def test_an_invalid_grammar_is_refused_with_the_reason(source, reason):
    with pytest.raises(RequestError) as caught:
        template_of(grammar(source))
    assert reason in caught.value.message
    assert caught.value.param == "structured_outputs.grammar"


@pytest.mark.parametrize("source", ['root ::= "a" [b-d]* "e"', BALANCED])
def test_a_matcher_can_be_rolled_back(source):
    """Both libraries continue as if the withdrawn tokens had never come."""
    matcher = template_of(grammar(source)).start()
    text = b"abcde" if "a" in source else b"(())"
    assert all(matcher.accept(byte) for byte in text)
    assert matcher.can_end()
    matcher.rollback(3)
    assert not matcher.can_end()
    assert not matcher.accept(ord("!"))
    assert all(matcher.accept(byte) for byte in text[-3:])
    assert matcher.can_end()


def test_ignored_spaces_do_not_make_a_grammar_ambiguous():
    source = 'start: sum\nsum: term ("+" term)*\nterm: NUMBER | "(" sum ")"\n%import common (NUMBER, WS)\n%ignore WS'
    matcher = template_of(grammar(source)).start()
    assert all(matcher.accept(byte) for byte in b"1" + b" " * 2_000 + b"+ 2")
    assert matcher.can_end()


def test_a_grammar_with_growing_cost_per_token_is_refused():
    with pytest.raises(RequestError, match="ambiguous"):
        template_of(grammar("root ::= e\ne ::= c | c e | c e e | c e e e\nc ::= [a-z ]"))
