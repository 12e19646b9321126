"""The vendored libraries: what is served is what the lock file pins, unedited, with its licences."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ROOT / "chat/playground/vendor"
SERVED = ROOT / "chat/static/chat/vendor"
BY_HAND = {"README.md", "HASHES.json"}
EXACT = re.compile(r"\d+\.\d+\.\d+")


def read(path: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(path.read_text())
    return parsed


def test_every_vendored_file_is_as_it_was_made() -> None:
    made = read(SERVED / "HASHES.json")
    files = {str(path.relative_to(SERVED)): path for path in SERVED.rglob("*") if path.is_file()}
    others = BY_HAND | {name for name in files if name.endswith(".d.ts")}
    assert set(files) - others == set(made)
    changed = [name for name, digest in made.items() if hashlib.sha256(files[name].read_bytes()).hexdigest() != digest]
    assert not changed, "made by chat/playground/vendor/build.mjs, never edited"


def test_every_module_has_types_and_a_line_in_the_readme() -> None:
    readme = (SERVED / "README.md").read_text()
    for name in read(SERVED / "HASHES.json"):
        if name.endswith(".js"):
            assert (SERVED / name).with_suffix(".d.ts").exists()
            assert f"`{name}`" in readme


def test_all_versions_are_exact_and_those_of_the_lock_file() -> None:
    package, lock = read(PACKAGES / "package.json"), read(PACKAGES / "package-lock.json")
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert all(EXACT.fullmatch(version) for version in versions.values())
    assert versions == {name: lock["packages"][f"node_modules/{name}"]["version"] for name in versions}
    assert all(entry.get("integrity") for path, entry in lock["packages"].items() if path)


def test_licences_and_first_lines_name_each_package_with_its_version() -> None:
    licences = (SERVED / "LICENSES.txt").read_text()
    served = "\n".join(path.read_text().split("\n", 1)[0] for path in [*SERVED.glob("*.js"), SERVED / "katex.css"])
    for name, version in read(PACKAGES / "package.json")["dependencies"].items():
        assert f"\n{name} {version} (" in licences
        assert f" {name} {version}" in served
