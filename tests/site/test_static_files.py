"""Collected static files: hashed names everywhere, compressed, and no import that leads nowhere."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command
from django.test import override_settings

from chat.playground.modules import DYNAMIC_IMPORT, STATIC_IMPORT, imported
from lightcone_site import settings as served_settings
from lightcone_site.static_files import ServedFiles

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "chat" / "static"
HASHED = re.compile(r".+\.[0-9a-f]{12}(\.\w+(\.gz)?)?")


def collect(folder: Path, **options: Any) -> Path:
    """Collect as `manage.py collectstatic` does with the settings of an installation."""
    call_command("collectstatic", interactive=False, verbosity=0, stdout=io.StringIO(), **options)
    return folder


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("static")
    with override_settings(STATIC_ROOT=folder, STORAGES=served_settings.STORAGES):
        yield collect(folder, ignore_patterns=ServedFiles.ignore_patterns)


@pytest.fixture
def probes(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder whose files are collected as `chat/probes/`, into the folder `static` of `tmp_path`."""
    sources, root = tmp_path / "sources", tmp_path / "static"
    probes = sources / "chat" / "probes"
    probes.mkdir(parents=True)
    finders = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    with override_settings(
        STATIC_ROOT=root,
        STORAGES=served_settings.STORAGES,
        STATICFILES_FINDERS=finders,
        STATICFILES_DIRS=[sources],
    ):
        yield probes


def test_every_collected_file_has_a_hash_and_large_texts_are_compressed(collected: Path) -> None:
    files = [path for path in collected.rglob("*") if path.is_file() and path.name != "staticfiles.json"]
    assert [path for path in files if not HASHED.fullmatch(path.name)] == []
    large = [path for path in files if path.suffix in (".js", ".css", ".txt") and path.stat().st_size > 2000]
    assert [path for path in large if not Path(f"{path}.gz").exists()] == []


def test_source_maps_types_and_pages_that_are_not_served_are_left_out(collected: Path) -> None:
    names = [str(path.relative_to(collected)) for path in collected.rglob("*")]
    assert [name for name in names if re.search(r"\.map|\.d\.|\.md|HASHES|redoc|rest_framework", name)] == []
    assert any("swagger-ui-bundle" in name for name in names)


def test_every_import_of_our_modules_leads_to_a_collected_file(collected: Path) -> None:
    found = 0
    for module in (collected / "chat").rglob("*.js"):
        text = module.read_text()
        for url in imported(text) + imported(text, DYNAMIC_IMPORT):
            assert HASHED.fullmatch(url)
            assert (module.parent / url).exists(), f"{module.name} imports {url}"
            found += 1
    assert found > 20


def test_our_style_sheets_name_collected_files(collected: Path) -> None:
    styles = [path for path in (collected / "chat").rglob("*.css") if "url(" in path.read_text()]
    assert styles
    for path in styles:
        for url in re.findall(r'url\("?([^")]+)"?\)', path.read_text()):
            assert url.startswith("data:") or (path.parent / url).exists(), f"{path.name} names {url}"


def test_every_file_that_a_template_or_the_console_names_is_collected(collected: Path) -> None:
    texts = [path.read_text() for path in (ROOT / "templates").rglob("*.html")]
    names = {name for text in texts for name in re.findall(r"""{% static ['"]([^'"]+)['"] %}""", text)}
    names |= set(re.findall(r'_static\("([^"]+)"\)', (ROOT / "chat/console/theme.py").read_text()))
    assert len(names) > 8
    for name in names:
        assert HASHED.fullmatch(staticfiles_storage.url(name))


def test_our_modules_import_each_other_without_cycles() -> None:
    """A name has the hash of a content that has the names of others: a cycle would never end."""
    imports: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.js"):
        name = str(path.relative_to(SOURCES))
        urls = [url for pattern in (STATIC_IMPORT, DYNAMIC_IMPORT) for url in imported(path.read_text(), pattern)]
        imports[name] = {posixpath.normpath(posixpath.join(posixpath.dirname(name), url)) for url in urls}
    while leaves := {name for name, targets in imports.items() if not targets & imports.keys()}:
        for name in leaves:
            del imports[name]
    assert imports == {}


def test_imports_are_rewritten_however_they_are_written_but_those_of_types_are_not(
    tmp_path: Path, probes: Path
) -> None:
    (probes / "a.js").write_text(
        'import { b,\n  c as d } from "./deep/b.js";\nimport * as all from \'./deep/b.js\';\nimport "./deep/b.js"\n'
        'export { b } from "./deep/b.js";\nexport * from "./deep/b.js";\nimport b, { c } from "./deep/b.js";\n'
        'const text = "image/*";\nexport const load = () => import("./deep/b.js");\n'
        '/** @import { T } from "./a.js" */\n/**\n * @type {import("./a.js").T}\n */\nexport let type;\n'
    )
    (probes / "deep").mkdir()
    (probes / "deep" / "b.js").write_text("export const b = 1;\nexport const c = 2;\nexport default b;\n")
    folder = collect(tmp_path / "static") / "chat" / "probes"
    (module,) = folder.glob("a.*.js")
    text = module.read_text()
    (target,) = (folder / "deep").glob("b.*.js")
    assert text.count(f'"./deep/{target.name}"') == 7
    assert text.count('"./a.js"') == 2
    assert "./deep/b.js" not in text


def test_a_long_chain_of_imports_is_resolved_in_any_order(tmp_path: Path, probes: Path) -> None:
    for number in range(20):
        (probes / f"m{number:02}.js").write_text(f'import "./m{number + 1:02}.js";\n')
    (probes / "m20.js").write_text("export const end = true;\n")
    folder = collect(tmp_path / "static") / "chat" / "probes"
    name = Path(staticfiles_storage.url("chat/probes/m00.js")).name
    for _ in range(20):
        (url,) = imported((folder / name).read_text())
        name = Path(url).name
    assert name.startswith("m20.")


def test_a_missing_file_that_ours_names_is_an_error_and_another_packages_is_not(tmp_path: Path, probes: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "styles.css").write_text('p { background: url("../nowhere/x.png"), url("../../../../x.png") }')
    with override_settings(STATICFILES_DIRS=[("other", other)]):
        (found,) = (collect(tmp_path / "static") / "other").glob("styles.*.css")
        assert "nowhere/x.png" in found.read_text()
    (probes / "a.js").write_text('import "./gone.js";')
    with pytest.raises(ValueError, match="gone.js"):
        collect(tmp_path / "static")


def test_names_stay_as_they_are_where_nothing_was_collected(probes: Path) -> None:
    assert staticfiles_storage.url("chat/probes/a.js") == "/static/chat/probes/a.js"


def test_a_name_that_was_not_collected_is_an_error(collected: Path) -> None:
    with pytest.raises(ValueError, match=r"chat/nothing\.js"):
        staticfiles_storage.url("chat/nothing.js")
