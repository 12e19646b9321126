"""Automated accessibility checks of a page with axe-core, which npm installs once, into .venv/axe."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(__file__).with_name("axe_core")
FOLDER = ROOT / ".venv" / "axe"
SERIOUS = ("serious", "critical")
IS_LOADED = "() => typeof axe === 'object'"
CONTRAST = ["color-contrast"]
"""The one rule whose findings depend on the theme."""
RUN = """async (rules) => (
    await axe.run(document, { resultTypes: ["violations"], ...(rules && { runOnly: rules }) })
  ).violations.map((found) =>
  [found.id, found.impact, found.nodes.length, found.nodes[0].target.join(" "), found.nodes[0].failureSummary])"""


@cache
def axe_source() -> str:
    """Return the script, of the version that the lock file names. Skip the test where npm is missing."""
    script = FOLDER / "node_modules" / "axe-core" / "axe.min.js"
    lock = (PACKAGE / "package-lock.json").read_bytes()
    kept = FOLDER / "package-lock.json"
    if not script.exists() or not kept.exists() or kept.read_bytes() != lock:
        npm = shutil.which("npm")
        if npm is None:
            (pytest.fail if os.environ.get("LIGHTCONE_TEST_REQUIRE") == "1" else pytest.skip)("needs npm for axe-core")
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PACKAGE / name, FOLDER / name)
        subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=FOLDER, check=True, timeout=120)
    return script.read_text(encoding="utf-8")


def axe_findings(page: Any, rules: list[str] | None = None) -> list[str]:
    """Return the serious and critical findings of all rules or some, of a page as it is, each with its first element.

    The script is evaluated by the driver, as the content policy of the page refuses script tags.
    """
    if not page.evaluate(IS_LOADED):
        page.evaluate(axe_source())
    return [
        f"{rule} ({impact}, {count} elements, first {target}): {' '.join(summary.split())}"
        for rule, impact, count, target, summary in page.evaluate(RUN, rules)
        if impact in SERIOUS
    ]
