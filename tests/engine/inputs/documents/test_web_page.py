"""Of an HTML page the text that it shows is read; its source is read where the name says that it is text."""

import base64

import pytest

from engine.api import RequestError
from engine.inputs import file_text

PAGE = b"""<!DOCTYPE html><html><head><title>The title</title><style>p { color: red }</style>
<script>var hidden = "<p>never</p>";</script></head><body><!-- remark -->
<h2>Heading</h2><p>One &amp; two<br>next   line<ul><li>first<li>second</ul>
<table><tr><th>a<th>b</tr><tr><td>1</td><td>2</td></tr></table>
<pre>  def f():
      pass</pre><template><p>never</p></template><img src=x alt="A  chart"></body></html>"""

TEXT = """The title
## Heading
One & two
next line
- first
- second
a\tb
1\t2
  def f():
      pass
[A chart]"""


def read(data, filename="", head=""):
    (text,) = file_text.read(head + base64.b64encode(data).decode(), filename)
    return text


@pytest.mark.parametrize(
    ("filename", "head"),
    [
        ("page.html", ""),
        ("page.HTM", ""),
        ("x", "data:text/html;base64,"),
        ("x", "data:application/xhtml+xml;base64,"),
        ("", ""),
    ],
)
def test_the_text_that_a_page_shows_is_read(filename, head):
    assert read(PAGE, filename, head) == TEXT


@pytest.mark.parametrize(("filename", "head"), [("page.html.txt", ""), ("x", "data:text/plain;base64,")])
def test_a_page_that_is_sent_as_text_stays_as_it_is(filename, head):
    assert read(PAGE, filename, head) == PAGE.decode()


@pytest.mark.parametrize("page", [b"", b"<script>x</script>", b"<p>&nbsp;</p>", b"<template>never ends"])
def test_a_page_without_text_is_refused(page):
    with pytest.raises(RequestError, match="has no text"):
        read(page, "x.html")


@pytest.mark.parametrize("end", [b"<", b"<b", b"<!-- never closed", b"<![CDATA[x", b"</", b"&#xFFFFFFFF;"])
def test_broken_markup_is_read_as_browsers_do(end):
    assert read(b"<p>a" + end, "x.html").startswith("a")
