"""Stop strings are found in any split, and only text that may become one is held back."""

from hypothesis import given
from hypothesis import strategies as st

from engine.outputs.stop import StopFinder, StopMatch

small_text = st.text("ab", max_size=12)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3).map(tuple)


def run(pieces, stops, include=False):
    """Feed pieces; return the released text, the stop string or None, and the text after each piece."""
    finder, out, progress = StopFinder(stops, include), "", []
    for piece in pieces:
        result = finder.feed(piece)
        if isinstance(result, StopMatch):
            return out + result.text, result.stop, progress
        out += result
        progress.append(out)
    return out + finder.flush(), None, progress


def slow_search(pieces, stops):
    """Find the stop by the definition: search for all stop strings after each piece.

    The first start wins, ties by list order.
    """
    text = ""
    for piece in pieces:
        text += piece
        found = [(text.find(stop), index) for index, stop in enumerate(stops) if stop in text]
        if found:
            start, index = min(found)
            return text, start, stops[index]
    return text, None, None


@given(st.lists(small_text, max_size=6), stop_lists)
def test_text_ends_at_the_first_stop_string(pieces, stops):
    text, start, stop = slow_search(pieces, stops)
    assert run(pieces, stops)[:2] == (text if start is None else text[:start], stop)


@given(st.lists(small_text, max_size=6), stop_lists)
def test_text_ends_after_an_included_stop_string(pieces, stops):
    text, start, stop = slow_search(pieces, stops)
    assert run(pieces, stops, include=True)[:2] == (text if start is None else text[: start + len(stop)], stop)


@given(st.lists(small_text, max_size=6), stop_lists)
def test_only_text_that_may_become_a_stop_string_is_held_back(pieces, stops):
    _, _, progress = run(pieces, stops)
    for index, out in enumerate(progress):
        text = "".join(pieces[: index + 1])
        held = text[len(out) :]
        assert text.startswith(out)
        assert not held or any(stop.startswith(held) for stop in stops)


@given(st.lists(small_text, max_size=6), stop_lists)
def test_nothing_is_held_back_for_included_stop_strings(pieces, stops):
    _, _, progress = run(pieces, stops, include=True)
    assert progress == ["".join(pieces[: index + 1]) for index in range(len(progress))]


def test_unsearchable_text_never_matches_even_partly():
    finder = StopFinder(("ab",))
    assert finder.feed("xa", search=False) == "xa"
    assert finder.feed("b") == "b"
    assert finder.feed("ab") == StopMatch("ab", "")


def test_held_back_text_goes_out_when_the_search_is_suspended():
    finder = StopFinder(("abc",))
    assert finder.feed("xab") == "x"
    assert finder.feed("c", search=False) == "abc"


def test_a_hostile_text_costs_linear_time():
    """A naive search for 32 stop strings of 1,024 characters in a text of their repeated prefix takes minutes here."""
    finder = StopFinder(tuple("a" * 1023 + chr(200 + index) for index in range(32)))
    out = "".join(finder.feed("a" * 64) for _ in range(60)) + finder.flush()
    assert out == "a" * 3840
