"""One sequence under a grammar: masks, ends, drafts and reasoning."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api import LogprobOptions, SamplingParams, StopRules
from engine.api.constraint import Constraint, ConstraintKind
from engine.messages import AddSequence, DefineGrammar, Thinking
from engine.sequence import Sequence
from engine.structured.backends.follower import Follower
from engine.structured.backends.matcher import MatcherFailed
from engine.structured.core_grammars import CoreGrammars
from tests.engine.structured.walking import NUM_WORDS, VOCABULARY, compiled, template_of
from tests.engine.tiny_tokenizer import IM_END, THINK

YES = Constraint(ConstraintKind.CHOICE, '["yes","yet"]')
LETTERS = Constraint(ConstraintKind.REGEX, "[ab]+")
OPEN = Thinking([THINK], [ord("|")], is_open=True)
MAYBE = Thinking([THINK], [ord("|")], is_open=False)


def sequence(thinking=None, output=b"", seq_id=1, grammar="key"):
    rules = SamplingParams(seed=1), StopRules(), LogprobOptions()
    return Sequence(
        AddSequence(seq_id, [1], list(output), *rules, [IM_END], 99, b"", grammar=grammar, thinking=thinking)
    )


def mask_of(follower):
    """Return the allowed ids, None if all are allowed."""
    words = np.zeros(NUM_WORDS, dtype=np.int32)
    if not follower.fill(words):
        return None
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist())


def follower(constraint, **options):
    followed = sequence(**options)
    return Follower(followed, template_of(constraint).start()), followed.output_ids


def test_an_end_token_is_allowed_exactly_where_the_grammar_may_end():
    followed, output_ids = follower(LETTERS)
    assert mask_of(followed) == {ord("a"), ord("b")}
    output_ids.append(ord("a"))
    assert mask_of(followed) == {ord("a"), ord("b"), IM_END}
    assert not followed.is_complete()


def test_an_answer_that_can_only_end_is_complete():
    followed, output_ids = follower(YES, output=b"ye")
    assert mask_of(followed) == {ord("s"), ord("t")}
    output_ids.append(ord("s"))
    assert followed.is_complete()
    assert mask_of(followed) == {IM_END}


def test_rejected_drafts_leave_no_trace_in_the_follower():
    followed, output_ids = follower(YES)
    output_ids += b"yes"
    assert followed.is_complete()
    del output_ids[1:]
    assert mask_of(followed) == {ord("e")}
    output_ids += b"et"
    assert followed.is_complete()


def test_after_a_disallowed_token_the_mask_is_empty():
    followed, _ = follower(YES, output=b"no")
    assert mask_of(followed) == set()
    assert not followed.is_complete()


def test_a_grammar_waits_until_the_reasoning_is_over():
    followed, output_ids = follower(YES, thinking=OPEN)
    assert mask_of(followed) is None
    output_ids += b"well, yes"
    assert mask_of(followed) is None
    assert not followed.is_complete()
    output_ids += b"|"
    assert mask_of(followed) == {ord("y")}
    output_ids += b"yet"
    assert followed.is_complete()
    del output_ids[-4:]
    assert mask_of(followed) is None


def test_an_answer_may_begin_with_reasoning_or_without():
    followed, output_ids = follower(YES, thinking=MAYBE)
    assert mask_of(followed) == {ord("y"), THINK}
    output_ids.append(THINK)
    assert mask_of(followed) is None
    output_ids[:] = b"y"
    assert mask_of(followed) == {ord("e")}


class Failing:
    def start(self):
        return self

    def accept(self, token_id):
        return True

    def fill(self, words):
        raise MatcherFailed("too complex")


def test_a_failed_matcher_allows_no_further_token(caplog):
    followed = Follower(sequence(), Failing())
    assert mask_of(followed) == set()
    assert mask_of(followed) == set()
    assert caplog.text.count("too complex") == 1


class Slow(Failing):
    def fill(self, words):
        words[0] = 1

    def can_end(self):
        return False


def test_a_grammar_with_slow_masks_is_abandoned(monkeypatch):
    times = iter([0.0, 0.2, 1.0, 1.3])
    monkeypatch.setattr("engine.structured.backends.follower.time.thread_time", lambda: next(times))
    followed = Follower(sequence(), Slow())
    assert mask_of(followed) == {0}
    assert mask_of(followed) == set()


@pytest.fixture(params=[True, False], ids=["masks filled ahead", "masks filled when asked for"])
def grammars(request):
    made = CoreGrammars(lambda: VOCABULARY, fills_ahead=request.param)
    yield made
    made.close()


def define(grammars, constraint, key="key"):
    backend, payload = compiled(constraint)
    grammars.define(DefineGrammar(key, backend, payload))
    while not grammars.is_ready(key):
        grammars.wait_for([key])


def test_masks_are_filled_for_rows_with_an_active_grammar_only(grammars):
    define(grammars, YES)
    plain, held, thinking = sequence(seq_id=1, grammar=""), sequence(seq_id=2), sequence(OPEN, seq_id=3)
    for one in (plain, held, thinking):
        grammars.add(one)
    assert grammars.bitmask([plain]) is None
    grammars.start_filling([plain, held, thinking])
    bitmask = grammars.bitmask([plain, held, thinking])
    assert bitmask.rows == [1]
    assert bitmask.words.shape == (1, NUM_WORDS)
    held.output_ids += b"yes"  # as accepted drafts do, within the step
    assert grammars.is_complete(held)
    assert bin(int(np.bitwise_count(grammars.bitmask([held]).words.numpy().view(np.uint32)).sum())) == bin(1)
    grammars.remove(2)
    assert not grammars.is_complete(held)
    assert grammars.bitmask([plain, thinking]) is None


def test_sequences_keep_a_grammar_that_was_evicted(grammars):
    define(grammars, YES)
    held = sequence()
    grammars.add(held)
    grammars.forget(["key", "unknown"])
    assert grammars.bitmask([held]).rows == [0]
    assert grammars.is_ready("key")
    with pytest.raises(KeyError):
        grammars.add(sequence(seq_id=2))


def test_a_grammar_that_cannot_be_built_fails_its_sequences(grammars):
    grammars.define(DefineGrammar("key", "llguidance", b'{"grammars":[{"lark_grammar":"start: ("}]}'))
    while not grammars.is_ready("key"):
        grammars.wait_for(["key"])
    with pytest.raises(MatcherFailed):
        grammars.add(sequence())
