"""The links that load a page's modules in one round trip."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.template import Context, Template
from django.test import override_settings

from chat.playground.module_links import found_text, module_links
from chat.playground.modules import DYNAMIC_IMPORT, closure_of, imported

PLAYGROUND = Path(__file__).resolve().parents[3] / "chat" / "static" / "chat" / "playground"
EXPORT = re.compile(r"^export (?:async )?(?:const|function|class) (\w+)", re.MULTILINE)


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder of static files, with an entry module and those that it needs."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app/main.js").write_text(
        'import { a } from "./a.js";\nimport { v } from "../v.js";\n/** @import { T } from "./types.js" */\n'
        'const later = () => import("./later.js");\n'
    )
    (tmp_path / "app/a.js").write_text('export { v } from "../v.js";\nimport "./b.js";\n')
    for name in ("v.js", "app/b.js", "app/later.js"):
        (tmp_path / name).write_text("export const v = 1;\n")
    forget()
    with override_settings(STATICFILES_DIRS=[tmp_path]):
        yield tmp_path
    forget()


def forget() -> None:
    module_links.cache_clear()
    found_text.cache_clear()


def test_all_that_static_imports_lead_to_is_preloaded_once_and_what_is_loaded_later_is_not(sources: Path) -> None:
    page = Template('{% load modules %}{% module_links "app/main.js" %}').render(Context())
    assert page.split("\n") == [
        f'<link rel="modulepreload" href="/static/{name}">' for name in ("app/main.js", "app/a.js", "v.js", "app/b.js")
    ]


def test_a_module_that_is_not_there_is_named(sources: Path) -> None:
    (sources / "app/b.js").unlink()
    with pytest.raises(FileNotFoundError, match="app/b.js is not among the static files"):
        closure_of("app/main.js", found_text)


def test_imports_on_several_lines_and_without_spaces_are_read() -> None:
    text = 'import{a}from"./1.js";import b,\n {c}\nfrom "../2.js"\nexport*as d from "./3.js";x.import("./4.js")'
    assert imported(text) == ["./1.js", "../2.js", "./3.js"]
    assert imported('f(() => import( "./a.js" ));importx("./b.js")', DYNAMIC_IMPORT) == ["./a.js"]


def test_what_a_module_of_the_page_exports_another_one_names() -> None:
    """A function was exported that its own module alone called."""
    texts = {path: path.read_text() for path in PLAYGROUND.rglob("*.js")}
    named = {path: set(re.findall(r"\w+", text)) for path, text in texts.items()}
    unused = [
        f"{path.relative_to(PLAYGROUND)}: {name}"
        for path, text in texts.items()
        for name in EXPORT.findall(text)
        if not any(name in others for other, others in named.items() if other != path)
    ]
    assert unused == []
