"""The tables of docs/models.md are made of the families, the file types and the tables of the tests.

LIGHTCONE_TEST_WRITE_TABLE=1 writes them into the page.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import gguf

from engine.gguf_file import BLOCK_TYPES
from engine.models.registry import FAMILIES
from tests.engine.execution.test_cuda_graphs import FAMILIES as CUDA_FAMILIES
from tests.engine.loading.test_loader import GGUF_MODELS
from tests.engine.models.test_decoder import TOWERS, VARIANTS
from tests.engine.models.test_transformers_backend import FOREIGN
from tests.oracle.test_greedy_equality import FAMILIES as GREEDY
from tests.oracle.test_greedy_equality import OTHER_FAMILIES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "models.md"
COMPUTED_ONLY = {"Q8_1", "Q8_K"}
"""Types of intermediate results, which no file has."""


def architectures(families: Iterable[str]) -> set[str]:
    return {f"{family.removesuffix('Text')}ForCausalLM" for family in families}


def families_table() -> list[list[str]]:
    logits = architectures(family for family, _ in VARIANTS.values()) | {f"{t}ForConditionalGeneration" for t in TOWERS}
    answers = architectures(family for family, _ in (*GREEDY.values(), *OTHER_FAMILIES.values()))
    files = {architecture for architecture, _, _ in GGUF_MODELS.values()}
    cuda = architectures(CUDA_FAMILIES)
    rows = [["models", "architecture", "files", "logits", "answers in a crowd", "CUDA"]]
    for family in FAMILIES:
        rows += [
            [family.models, f"`{name}`", "folder", *marks(name, logits, answers, cuda)] for name in family.hf_names
        ]
        rows += [[family.models, f"`{name}`", "GGUF", *marks(name, files, set(), set())] for name in family.gguf_names]
    return rows


def foreign_table() -> list[list[str]]:
    answers = {family for family, _ in OTHER_FAMILIES.values()}
    rows = [["architecture of transformers", "logits", "answers in a crowd"]]
    for family, _ in sorted(FOREIGN.values(), key=lambda row: row[0]):
        name = "GPT2LMHeadModel" if family == "GPT2" else f"{family.removesuffix('Text')}ForCausalLM"
        rows.append([f"`{name}`", "tested", "tested" if family in answers else "expected"])
    return rows


def marks(name: str, *tested: set[str]) -> list[str]:
    return ["tested" if name in names else "expected" for names in tested]


def types_table() -> list[list[str]]:
    known = {block_type.name for block_type in BLOCK_TYPES.values()}
    stored = {kind.name for kind in gguf.GGMLQuantizationType} - COMPUTED_ONLY
    return [
        ["GGUF types", "state"],
        [", ".join(sorted(known)), "tested: opened as gguf-py opens them"],
        [", ".join(sorted(stored - known)), "refused by name"],
    ]


def rendered(rows: list[list[str]]) -> str:
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def test_the_tables_of_the_page_are_those_of_the_tests():
    page = PAGE.read_text()
    tables = {"families": families_table(), "foreign": foreign_table(), "types": types_table()}
    for name, rows in tables.items():
        block = f"<!-- table: {name} -->\n{rendered(rows)}\n<!-- end -->"
        page = re.sub(rf"<!-- table: {name} -->\n.*?<!-- end -->", lambda _, block=block: block, page, flags=re.DOTALL)
    if os.environ.get("LIGHTCONE_TEST_WRITE_TABLE") == "1":
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "write it with LIGHTCONE_TEST_WRITE_TABLE=1"
