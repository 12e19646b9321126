"""Fail on identifiers with a word of docs/glossary.md's last table: `python .ci/words.py`, part of `make lint`."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

RETIRED = frozenset(
    (
        "afterlife",
        "linger",
        "aside",
        "board",
        "crew",
        "team",
        "hire",
        "door",
        "heart",
        "leftovers",
        "news",
        "seat",
        "reword",
        "reworded",
        "told",
        "trial",
    )
)
ALLOWED = frozenset(("PLAYGROUND_LINGER",))
"""Old names of settings, which work for one release."""
CHECKED = ("chat/*.py", "engine/*.py", "lightcone_site/*.py", "benchmarks/*.py", ".ci/*.py", "tests/*.py")
PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that the module defines, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if not node.name.startswith("test_"):
                    yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


def retired_in(name: str) -> set[str]:
    """Return the retired words within an identifier, plurals included."""
    words = {word.lower() for word in PART.findall(name)}
    return {word for word in RETIRED if word in words or f"{word}s" in words} if name not in ALLOWED else set()


def main() -> int:
    files = subprocess.run(["git", "ls-files", *CHECKED], capture_output=True, text=True, check=True).stdout.split()
    found = []
    for file in files:
        if "/migrations/" in file or not Path(file).exists():
            continue
        for name, line in identifiers(ast.parse(Path(file).read_text(encoding="utf-8"))):
            if words := retired_in(name):
                found.append(
                    f"{file}:{line}: {name} holds a retired word ({', '.join(sorted(words))}); see docs/glossary.md"
                )
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
