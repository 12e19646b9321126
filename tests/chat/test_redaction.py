"""What is redacted before texts are stored, what stays, and that no rule takes long."""

from __future__ import annotations

import time

import pytest

from chat.redaction import MAX_PATTERN_CHARS, PatternUnusable, Redaction, RedactionTooSlow, pattern_problem


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("mail ann.b+c@example.co.uk now", "mail [e-mail] now"),
        ("pay with 4111 1111 1111 1111.", "pay with [card]."),
        ("pay with 5500-0000-0000-0004", "pay with [card]"),
        ("order 4111 1111 1111 1112", "order 4111 1111 1111 1112"),
        ("call +49 (30) 123 456-78", "call [phone]"),
        ("call 555-123-4567 or 0044 20 7946 0958", "call [phone] or [phone]"),
        ("key lc_abcdefgh1234_" + "0f" * 24, "key lc_abcdefgh1234_***"),
        ("sk-proj-abcdefghijklmnopqrstuvwx", "[key]"),
        ("Authorization: Bearer abcdefghijklmnop", "Authorization: Bearer ***"),
        ("AKIAIOSFODNN7EXAMPLE", "[key]"),
    ],
)
def test_built_in_rules_replace_what_identifies(text: str, stored: str) -> None:
    assert Redaction().apply(text) == stored


@pytest.mark.parametrize(
    "text",
    ["2026-11-26 22:10:00", "x = 3.14159265358979", "version 1.2.3.4", "in 2024, 1,000,000 people", "a@b", "sk-it"],
)
def test_plain_text_stays(text: str) -> None:
    assert Redaction().apply(text) == text


def test_texts_deep_in_objects_are_redacted_and_numbers_stay() -> None:
    value = {"messages": [{"role": "user", "content": [{"text": "I am a@b.org"}]}], "n": 4111111111111111, "on": True}
    assert Redaction().apply(value) == {
        "messages": [{"role": "user", "content": [{"text": "I am [e-mail]"}]}],
        "n": 4111111111111111,
        "on": True,
    }


def test_own_patterns_come_after_the_built_in_ones() -> None:
    assert Redaction([r"PAT-\d+", "(?i)bob"]).apply("PAT-12 of Bob, b@c.de") == "[redacted] of [redacted], [e-mail]"


def test_a_pattern_that_backtracks_for_ever_ends_in_time() -> None:
    started = time.monotonic()
    with pytest.raises(RedactionTooSlow):
        Redaction([r"(?:a|aa)+$"]).apply("a" * 200 + "b", timeout_s=0.2)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "no regular expression"),
        ("x*", "empty text"),
        ("x" * (MAX_PATTERN_CHARS + 1), f"{MAX_PATTERN_CHARS + 1} characters, of at most {MAX_PATTERN_CHARS}"),
        (r"PAT-\d+", ""),
        ("(?R)", "calls a group or itself"),
        ("(?|(?R)|a)", "calls a group or itself"),
        ("(?<x>a)(?&x)", "calls a group or itself"),
        ("(?P<x>a)(?P>x)", "calls a group or itself"),
        ("(a)(?1)", "calls a group or itself"),
        ("(?+1)(a)", "calls a group or itself"),
        (r"\((?0)", "calls a group or itself"),
        ("(?x)#\\\n(?R)", "line break"),
        ("(?V1)[[a](?:b{9000}){9000}]", "flag V1"),
        ("(?:(?:a?){1000}){1000}x", "1000001 parts, of at most 10000"),
        ("(?:(?:a?){,1000}){7,1000}x", "1000001 parts"),
        ("(?x)(?:(?:a?){ 1000 }) { 1000 }x", "1000002 parts"),
        ("(?:a{1000}b){1000}", "1001000 parts"),
        ("(?:[(]{200}){200}", "40000 parts"),
        ("(?:[[:alpha:][]{200}){200}", "40000 parts"),
        ("(?:(?:(?:a{9}){9}){999}){999}", "80838081 parts"),
        ("(){9999}", "99990 parts"),
        (r"\(\?R\) [(?:)]{3}|(?:\d{4}[ -]?){4}|.{0,5000}x{1,}|a{b}", ""),
    ],
)
def test_what_is_wrong_with_a_pattern_is_said(pattern: str, problem: str) -> None:
    found = pattern_problem(pattern)
    assert problem in found
    assert bool(problem) == bool(found)


def test_no_rules_are_made_of_an_unusable_pattern() -> None:
    with pytest.raises(PatternUnusable, match="calls a group or itself"):
        Redaction([r"PAT-\d+", "(?|(?R)|a)"])


def test_patterns_within_the_limits_compile_quickly() -> None:
    started = time.monotonic()
    assert pattern_problem("(?:(?:a?){95}){100}" + "b{0,9}" * 45 + "x") == ""
    assert pattern_problem("a{1000}" * 9 + "(?:b|c){40}") == ""
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("text", ["4" * 100_000, "a@" * 50_000, "+1 " * 30_000, "-----BEGIN " * 9_000, "a." * 50_000])
def test_built_in_rules_are_quick_on_hostile_texts(text: str) -> None:
    Redaction().apply(text, timeout_s=5)
