"""The tables of docs/models.md are made of the families, the file types and the tables of the tests.

LIGHTCONE_TEST_WRITE_TABLE=1 writes them into the page.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import gguf

from engine.gguf_file import BLOCK_TYPES
from engine.loading.quantization_config import READERS
from engine.model_kind import GGUF_ENCODERS as GGUF_NAMES
from engine.models import gemma4, gguf_encoders
from engine.models.encoder_registry import ENCODER_FAMILIES
from engine.models.registry import FAMILIES
from engine.outputs.reasoning import registry as reasoning
from engine.outputs.tools import registry as tools
from engine.quantization.scheme import MODES
from engine.tokenizers.gguf_tokenizer import BUILDERS
from engine.tokenizers.split_rules import SPLIT_RULES
from tests.engine.encoder_folders import FAMILIES as ENCODERS
from tests.engine.execution.test_cuda_graphs import FAMILIES as CUDA_FAMILIES
from tests.engine.loading.quantized_folders import FORMATS
from tests.engine.loading.test_gguf_types import MODELS as GGUF_TYPES
from tests.engine.loading.test_loader import GGUF_MODELS
from tests.engine.models.test_decoder import TOWERS, VARIANTS
from tests.engine.models.test_transformers_backend import FOREIGN
from tests.engine.test_gguf_encoders import ENCODERS as GGUF_ENCODERS
from tests.engine.test_rerankers import SCORERS
from tests.engine.tokenizers.originals import ORIGINALS
from tests.engine.tokenizers.test_gguf_tokenizer import KINDS
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
        folders = [(name, "folder", *marks(name, logits, answers, cuda)) for name in family.hf_names]
        others = [(name, "GGUF", *marks(name, files, set(), set())) for name in family.gguf_names]
        for name, kind, *states, on_cuda in folders + others:
            state = "refused" if family is gemma4.FAMILY else on_cuda
            rows.append([family.models, f"`{name}`", kind, *states, state])
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


def encoders_table() -> list[list[str]]:
    vectors = {f"{family}Model" for family in ENCODERS}
    scores = {f"{family}ForSequenceClassification" for family in SCORERS}
    in_gguf = {kind for family, _ in GGUF_ENCODERS for kind in (["nomic-bert"] if family == "NomicBert" else ["bert"])}
    rows = [["models", "architecture", "files", "kind", "against transformers"]]
    for family in ENCODER_FAMILIES:
        kinds = [(name, "embedding") for name in family.hf_names] + [(name, "reranker") for name in family.scorer_names]
        rows += [[family.models, f"`{name}`", "folder", kind, *marks(name, vectors | scores)] for name, kind in kinds]
    rows += [
        [gguf_encoders.FAMILY.models, f"`{name}`", "GGUF", "embedding", *marks(name, in_gguf)] for name in GGUF_NAMES
    ]
    return [*rows, [gguf_encoders.FAMILY.models, "`bert`", "GGUF", "reranker", "tested"]]


def types_table() -> list[list[str]]:
    known = {block_type.name for block_type in BLOCK_TYPES.values()}
    stored = {kind.name for kind in gguf.GGMLQuantizationType} - COMPUTED_ONLY
    return [
        ["GGUF types", "state"],
        [
            ", ".join(sorted(known & GGUF_TYPES.keys())),
            "tested: blocks open as in gguf-py, whole models have logits as in transformers",
        ],
        [", ".join(sorted(stored - known)), "refused by name"],
    ]


def tokenizers_table() -> list[list[str]]:
    """Rows of kinds, then of rules: one for all names that share a rule."""
    rows = [["`tokenizer.ggml.model`", "`tokenizer.ggml.pre`", "models", "state"]]
    tested = {kind: [models for models, (other, _) in KINDS.items() if other == kind] for kind in BUILDERS}
    rows += [[f"`{kind}`", "any", "; ".join(models), "tested"] for kind, models in tested.items() if models]
    for rule in dict.fromkeys(rule for _, rule in SPLIT_RULES.values()):
        names = [name for name, (_, other) in SPLIT_RULES.items() if other == rule]
        models = ", ".join(dict.fromkeys(SPLIT_RULES[name][0] for name in names))
        equal = [f"`{name}`" for name in names if name in ORIGINALS]
        state = "expected" if not equal else "tested" if len(equal) == len(names) else f"tested: {', '.join(equal)}"
        rows.append(["`gpt2`", ", ".join(f"`{name}`" for name in names), models, state])
    return rows


def parsers_table() -> list[list[str]]:
    rows = [["reads", "parser", "if the template has", "else for the architectures", "with the tokens"]]
    for name in dict.fromkeys(name for name, _ in tools.TEMPLATE_MARKS):
        marks = [quoted(texts) for marked, texts in tools.TEMPLATE_MARKS if marked == name]
        family = next(((names, tokens) for other, names, tokens in tools.FAMILIES if other == name), ((), ()))
        rows.append(["calls", f"`{name}`", "; or ".join(marks), *map(quoted, family)])
    rows.append(["calls", f"`{tools.DEFAULT}`", "anything else", "", ""])
    for name in dict.fromkeys(name for _, name in reasoning.SIGNS):
        marks = [quoted(texts) for texts, signed in reasoning.SIGNS if signed == name]
        names = next((names for other, names in reasoning.FAMILIES if other == name), ())
        tokens = reasoning.FORMATS[name].vocabulary if names else ()
        rows.append(["reasoning", f"`{name}`", "; or ".join(marks), quoted(names), quoted(tokens)])
    rows.append(
        ["reasoning", "`deepseek_r1` (`olmo3` if the tags are no tokens)", "a prompt that opens `<think>`", "", ""]
    )
    rows.append(["reasoning", "`qwen3` (`think_text` if the tags are no tokens)", "`think>` elsewhere", "", ""])
    return rows


def quoted(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`".replace("|", "\\|") for text in texts)


HELD = {
    "four": ("four bits, a scale and a minimum per 32 weights: the numbers of the file", "0.625"),
    "table": ("four bits from a table, a scale per 32 weights", "0.56"),
    "bytes": ("eight bits, a scale per output: the numbers of the file", "1.06"),
    "eight": ("eight bits, a scale per 32 weights", "1.06"),
}


def quantised_table() -> list[list[str]]:
    choices = ", ".join(f"`{mode}`" for mode in MODES if mode != "int8") + "; on CUDA `int8` too"
    rows = [["format", "`quant_method`", "state", "`auto` on a CPU with AVX2", "bytes", "`LIGHTCONE_WEIGHTS`"]]
    for name, (config, _, held) in FORMATS.items():
        rows.append([name, f"`{config['quant_method']}`", "tested", *HELD[held], choices])
    return [rows[0], *sorted(rows[1:], key=lambda row: (row[0].lower(), row[1]))]


def rendered(rows: list[list[str]]) -> str:
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def test_every_method_of_quantised_folders_is_compared():
    assert {config["quant_method"] for config, _, _ in FORMATS.values()} == set(READERS)


def test_every_kind_of_tokenizer_is_compared():
    assert {"gpt2", *(kind for kind, _ in KINDS.values())} == set(BUILDERS)


def test_the_tables_of_the_page_are_those_of_the_tests():
    page = PAGE.read_text()
    tables = {
        "families": families_table(),
        "foreign": foreign_table(),
        "encoders": encoders_table(),
        "types": types_table(),
        "quantised": quantised_table(),
        "tokenizers": tokenizers_table(),
        "parsers": parsers_table(),
    }
    for name, rows in tables.items():
        block = f"<!-- table: {name} -->\n{rendered(rows)}\n<!-- end -->"
        page = re.sub(rf"<!-- table: {name} -->\n.*?<!-- end -->", lambda _, block=block: block, page, flags=re.DOTALL)
    if os.environ.get("LIGHTCONE_TEST_WRITE_TABLE") == "1":
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "write it with LIGHTCONE_TEST_WRITE_TABLE=1"
