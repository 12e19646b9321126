"""docs/api/compatibility.md, made of results.json, which holds the last run of each client's script.

A run of some clients replaces only their entries. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.contract.clients import agent_model
from tests.contract.clients.catalogue import CLIENTS, HERE, Client

RESULTS = HERE / "results.json"
PAGE = HERE.parents[2] / "docs" / "api" / "compatibility.md"
GROUPS = (
    *("chat", "stream", "async", "tools", "structured", "completions", "embeddings", "responses"),
    *("images", "audio", "files", "batches", "tokens", "models", "errors"),
)
"""Groups of features, by the beginning of their names, in the order of the columns."""

Results = dict[str, dict[str, Any]]
INTRODUCTION = """# Compatibility

Published clients, unmodified, each in an environment of its own, against `manage.py serve` with the default model, or
with another one where that is said; models that see and hear are small random ones. `make contract` runs them and
writes this page; `.ci/run` runs those of Python.
The scripts and the pins are in `tests/contract/clients/`.

A cell says how many of a client's features of that kind passed; an empty one, that the client has none or that they are
not tried. What each feature is, and why one does not work, stands [below](#feature-by-feature).
"""


def results_read() -> Results:
    return json.loads(RESULTS.read_text())


def results_write(outcomes: Mapping[str, list[dict[str, Any]]]) -> None:
    """Store the results of some clients by name."""
    kept = results_read() if RESULTS.exists() else {}
    for client in CLIENTS:
        if client.name in outcomes:
            features = {
                line["feature"]: {"passed": line["passed"], "why": line["why"]} for line in outcomes[client.name]
            }
            kept[client.name] = {"version": client.version, "features": features}
    ordered = {client.name: kept[client.name] for client in CLIENTS if client.name in kept}
    RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(ordered))


def page(results: Results) -> str:
    known = [client for client in CLIENTS if client.name in results]
    head = ["client", "version", *GROUPS]
    rows = [head, ["---"] * len(head)]
    rows += [
        [client.name, results[client.name]["version"], *_cells(results[client.name]["features"])] for client in known
    ]
    sections = [INTRODUCTION, "\n".join(_line(row) for row in rows) + "\n", "## Feature by feature\n"]
    sections += [_section(client, results[client.name]) for client in known]
    return "\n".join(sections)


def _cells(features: Mapping[str, Mapping[str, Any]]) -> list[str]:
    cells = []
    for group in GROUPS:
        passed = [outcome["passed"] for name, outcome in features.items() if name.split(":")[0] == group]
        cells.append(f"{sum(passed)} of {len(passed)}" if passed else "")
    return cells


def _section(client: Client, result: Mapping[str, Any]) -> str:
    rows = [["feature", "result"], ["---", "---"]]
    rows += [[name, _said(**outcome)] for name, outcome in result["features"].items()]
    model = f", with {agent_model.TITLE}" if client.needs_agent_model else ""
    model = ", with a model that sees and one that writes down speech" if client.sends_media else model
    return (
        f"### {client.package} {result['version']} ({client.registry}){model}\n\n"
        + "\n".join(_line(row) for row in rows)
        + "\n"
    )


def _said(*, passed: bool, why: str) -> str:
    if passed:
        return f"passed ({why})" if why else "passed"
    return f"no: {why}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
