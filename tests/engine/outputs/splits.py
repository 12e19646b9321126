"""Texts split in any way, and the joined pieces that a parser returns for them."""

from hypothesis import strategies as st

from engine.outputs.pieces import CallArguments, ContentText, ReasoningText


def cut(text, points):
    """Return the text in pieces, cut at these places (any numbers)."""
    places = sorted({point % (len(text) + 1) for point in points} | {0, len(text)})
    return [text[start:end] for start, end in zip(places, places[1:], strict=False)]


def every_cut_in_two(text):
    return [[text[:index], text[index:]] for index in range(len(text) + 1)]


def joined(pieces):
    """Return pieces with neighbours of one kind made one."""
    result = []
    for piece in pieces:
        last = result[-1] if result else None
        if isinstance(piece, ContentText | ReasoningText | CallArguments) and type(piece) is type(last):
            result[-1] = type(piece)(last.text + piece.text)
        else:
            result.append(piece)
    return result


def say(parser, pieces):
    """Return the pieces that the parser makes of a text in these fragments."""
    said = [said for piece in pieces for said in parser.feed(piece)]
    return joined([*said, *parser.flush()])


def texts_of(*words):
    """Return texts of these fragments, with frequent parts of markers."""
    parts = [word[:end] for word in words for end in (1, len(word) // 2, len(word) - 1)]
    return st.lists(st.sampled_from([*words, *parts, "a", "\n", " "]), max_size=9).map("".join)


cuts = st.lists(st.integers(0, 200), max_size=6)
