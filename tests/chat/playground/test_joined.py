"""Modules are served together: each once, with the names that others know, and never those of another page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chat.playground.joined import FOLDER, OTHER_PAGE, PAGE, joined_modules, module_hosts, rooms

SOURCES = Path(__file__).resolve().parents[3] / "chat" / "static"
APP = {
    PAGE: 'import { a as first } from "./core/a.js";\nimport * as b from "./core/b.js";\nimport "./core/c.js";\n'
    'first(b);\nimport("./view/room.js");\nimport("./view/other.js");\n',
    f"{FOLDER}core/a.js": '// @ts-check\nimport v from "../../../vendor/v.js";\n/** Says `a`. @param {string} x */\n'
    "export function a(x) {\n  return v(x); // as it is\n}\nexport const more = 1;\n",
    f"{FOLDER}core/b.js": 'import { a } from "./a.js";\nexport class B {}\n',
    f"{FOLDER}core/c.js": "export async function c() {}\n",
    f"{FOLDER}view/room.js": 'import { B } from "../core/b.js";\nimport { only } from "./only.js";\n'
    'import { both } from "./both.js";\nexport const Room = [B, only, both];\n',
    f"{FOLDER}view/other.js": 'import { both } from "./both.js";\nexport const Other = both;\n',
    f"{FOLDER}view/only.js": "export const only = 1;\n",
    f"{FOLDER}view/both.js": 'import { c } from "../core/c.js";\nexport const both = c;\n',
    OTHER_PAGE: 'import { c } from "./app/core/c.js";\nc();\n',
    "chat/vendor/v.js": "export default 1;\n",
}


def test_a_module_is_served_with_the_page_or_the_one_room_that_needs_it() -> None:
    assert rooms(APP.__getitem__) == [f"{FOLDER}view/other.js", f"{FOLDER}view/room.js"]
    hosts = {
        name.removeprefix(FOLDER): host.removeprefix(FOLDER) for name, host in module_hosts(APP.__getitem__).items()
    }
    assert hosts == {
        "main.js": "main.js",
        "core/a.js": "main.js",
        "core/b.js": "main.js",
        "core/c.js": "core/c.js",  # another page needs it, which must not start this one
        "view/room.js": "view/room.js",
        "view/only.js": "view/room.js",
        "view/other.js": "view/other.js",
        "view/both.js": "view/both.js",  # two rooms need it
    }


def test_imports_become_reads_of_what_a_module_returns() -> None:
    texts = joined_modules(APP.__getitem__)
    assert texts[f"{FOLDER}core/a.js"] is None
    assert texts[PAGE] == (
        'import * as $vendor_v from "../../vendor/v.js";\nimport { $core_c } from "./core/c.js";\n'
        "const $core_a = (() => {\nconst { default: v } = $vendor_v;\nfunction a(x) {\n  return v(x); // as it is\n}\n"
        "const more = 1;\nreturn { a, more };\n})();\n"
        "const $core_b = (() => {\nconst { a } = $core_a;\nclass B {}\nreturn { B };\n})();\n"
        "const $main = (() => {\nconst { a: first } = $core_a;\nconst b = $core_b;\nvoid $core_c;\nfirst(b);\n"
        'import(JSON.parse(document.getElementById("later-modules").textContent)["chat/playground/app/view/room.js"]);\n'
        'import(JSON.parse(document.getElementById("later-modules").textContent)["chat/playground/app/view/other.js"]);\n'
        "return {  };\n})();\nexport { $core_a, $core_b, $main };\n"
    )
    assert texts[f"{FOLDER}view/room.js"] == (
        'import { $core_b } from "../main.js";\nimport { $view_both } from "./both.js";\n'
        "const $view_only = (() => {\nconst only = 1;\nreturn { only };\n})();\n"
        "const $view_room = (() => {\nconst { B } = $core_b;\nconst { only } = $view_only;\n"
        "const { both } = $view_both;\n"
        "const Room = [B, only, both];\nreturn { Room };\n})();\nexport { $view_only, $view_room };\n"
        "export const { Room } = $view_room;\n"
    )


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match=r"both\.js"):
        joined_modules({name: text for name, text in APP.items() if "both" not in name}.__getitem__)


def test_modules_that_import_each_other_in_a_circle_are_refused_by_name() -> None:
    circle = APP | {f"{FOLDER}core/a.js": 'import { B } from "./b.js";\nexport const a = B;\n'}
    with pytest.raises(ValueError, match=r"core/[ab]\.js is imported by a module that it imports"):
        joined_modules(circle.__getitem__)


def test_our_modules_export_names_that_are_never_assigned_again() -> None:
    for path in (SOURCES / FOLDER).rglob("*.js"):
        for line in re.findall(r"^export .*$", path.read_text(), re.MULTILINE):
            assert re.match(r"export ((async )?function|class|const) \w+|export \{\};$", line), (path.name, line)
