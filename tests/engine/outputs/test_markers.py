"""Text is cut at its markers in any split, and only text that may become one is held back."""

from hypothesis import given
from hypothesis import strategies as st

from engine.outputs.markers import MarkerCutter, TagAhead
from tests.engine.outputs.splits import cut, cuts

small_text = st.text("<a>\n ", max_size=30)


def split(cutter, pieces):
    parts = [""]
    for piece in pieces:
        first, *rest = cutter.feed(piece)
        parts[-1] += first
        parts += rest
    parts[-1] += cutter.flush()
    return parts


@given(small_text, cuts)
def test_any_split_is_cut_like_the_whole(text, points):
    markers = ("\n<a>", "<a>", "><")
    parts = split(MarkerCutter(*markers), cut(text, points))
    assert parts == split(MarkerCutter(*markers), [text])
    assert "".join(parts) == text
    assert set(parts[1::2]) <= set(markers)
    assert not any(marker in part for part in parts[::2] for marker in markers)


@given(small_text, cuts)
def test_only_text_that_may_become_a_marker_is_held_back(text, points):
    cutter, out, so_far = MarkerCutter("<aa>", "\n<a"), "", ""
    for piece in cut(text, points):
        so_far += piece
        out += "".join(cutter.feed(piece))
        held = so_far[len(out) :]
        assert not held or "<aa>".startswith(held) or "\n<a".startswith(held)


def test_nothing_is_held_back_after_the_last_requested_marker():
    assert MarkerCutter("<a>").feed("x<a>y<a><", most=1) == ["x", "<a>", "y<a><"]


@given(small_text, cuts)
def test_tag_after_white_space_is_found_in_every_split(text, points):
    def look(pieces):
        ahead = TagAhead("<a>")
        for index, piece in enumerate(pieces):
            found = ahead.feed(piece)
            if found:
                return found[0], found[1], found[2] + "".join(pieces[index + 1 :])
        return ahead.flush()

    found = look(cut(text, points))
    assert found == look([text])
    assert "".join(found) == text
