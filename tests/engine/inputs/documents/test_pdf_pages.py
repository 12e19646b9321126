"""Pages of PDF without text are images for models that see, within limits; other models are told who sees."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from engine.api import RequestError
from engine.inputs.file_text import read
from tests.engine.inputs.pdf_writing import encrypted_pdf, pdf, scan

RULES = {"is_each": False, "num_left": 4, "max_pixels": 50_000_000, "max_side": 16_384}
COLOURS = "ff0000 00ff00 0000ff 000000"
LONG = " ".join(["words"] * 30)


def parts_of(data, rules=RULES, **changes):
    return read(base64.b64encode(data).decode(), "x.pdf", None if rules is None else rules | changes, ["llava", "qwen"])


def kinds(parts):
    return [part if isinstance(part, str) else "image" for part in parts]


def refusal(data, **changes):
    with pytest.raises(RequestError) as caught:
        parts_of(data, **changes)
    return caught.value.message


def pixels(png):
    with Image.open(io.BytesIO(png)) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        return np.asarray(image)


def test_a_page_with_little_text_beside_a_picture_is_an_image_between_its_marks():
    parts = parts_of(scan((LONG, COLOURS), ("", COLOURS), ("Figure 1", COLOURS), ("Title", ""), ("", "")))
    assert kinds(parts) == [
        f"[Page 1]\n{LONG}\n\n[Page 2]",
        "image",
        "\n[Page 3]\nFigure 1",
        "image",
        "\n[Page 4]\nTitle\n\n[Page 5]",
    ]


def test_the_image_shows_what_is_on_the_page():
    _, png = parts_of(scan(("", COLOURS)))
    shown = pixels(png)
    assert shown.shape == (1568, 1212, 3)
    place = [round(1568 * (792 - y) / 792) for y in (222, 122)], [round(1212 * x / 612) for x in (122, 222)]
    seen = [tuple(int(value) for value in shown[y, x]) for y in place[0] for x in place[1]]
    assert seen == [(255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0)]
    assert (shown[:200] == 255).all()


def test_the_same_page_gives_the_same_bytes():
    assert parts_of(scan(("", COLOURS))) == parts_of(scan(("", COLOURS)))


def test_each_page_is_an_image_beside_its_text_where_that_is_asked_for():
    parts = parts_of(pdf("First", ""), is_each=True)
    assert kinds(parts) == ["[Page 1]\nFirst", "image", "\n[Page 2]", "image"]
    assert (pixels(parts[1]) != 255).any()
    assert (pixels(parts[3]) == 255).all()


def test_a_model_that_does_not_see_gets_the_text_or_the_names_of_those_that_do():
    assert parts_of(scan((LONG, COLOURS), ("", COLOURS)), None) == [f"[Page 1]\n{LONG}\n\n[Page 2]"]
    assert refusal(scan(("", COLOURS)), rules=None) == (
        "the PDF file has no text; a model that takes images sees its pages, such as llava, qwen, or send their text"
    )


def test_more_pages_than_a_request_may_show_are_refused():
    message = refusal(scan(*[("", COLOURS)] * 5))
    assert message.startswith("5 pages of the PDF file that have no text")
    assert message.endswith("4 more; send fewer pages")
    assert refusal(pdf(*"x" * 5), is_each=True).endswith("4 more; send fewer pages, or leave out detail")
    assert len(parts_of(pdf(*"x" * 5))) == 1


@pytest.mark.parametrize(
    ("box", "changes", "shape"),
    [
        ("0 0 612 792", {"max_pixels": 10_000}, (113, 87)),
        ("0 0 612 792", {"max_side": 100}, (100, 78)),
        ("0 0 100 100", {}, (200, 200)),
        ("0 0 1 14400", {}, (1568, 1)),
        ("0 0 1e30 1e30", {}, (1568, 1212)),
        ("0 0 0 0", {}, (1568, 1212)),
        ("5 5 -5 -5", {}, (20, 20)),
        ("0 0 nan nan", {}, (1568, 1212)),
    ],
)
def test_pages_of_any_size_become_images_within_the_limits(box, changes, shape):
    _, png = parts_of(scan(("", COLOURS), box=box), **changes)
    assert pixels(png).shape[:2] == shape
    assert shape[0] * shape[1] <= changes.get("max_pixels", 1568**2)


@pytest.mark.parametrize(
    "data", [encrypted_pdf(""), pdf("x")[:200], b"%PDF-1.7\n" + bytes(range(256)) * 40, pdf("", "")]
)
def test_files_that_cannot_be_read_are_refused_as_for_any_model(data):
    assert any(word in refusal(data) for word in ("encrypted", "damaged", "no text"))
