"""Everything that shapes an engine, fixed before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StructuredLimits:
    """How large a constraint of an answer may be, and what compiling it may cost.

    `schema_nodes` counts schemas, properties, enum values and branches; `schema_bound` is the largest `minItems`,
    `maxLength` and the like; `repeats` the product of the nested bounds of a regular expression or grammar; `depth` is
    that of their brackets.
    """

    schema_bytes: int = 256 << 10
    schema_depth: int = 64
    tag_depth: int = 80
    schema_nodes: int = 20_000
    schema_bound: int = 100_000
    repeats: int = 10_000
    regex_bytes: int = 16 << 10
    grammar_bytes: int = 256 << 10
    choice_strings: int = 10_000
    choice_bytes: int = 1 << 20
    tool_bytes: int = 1 << 20
    depth: int = 64
    compile_timeout_s: float = 5.0
    compile_bytes: int = 512 << 20
    cache_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine. `None` and 0 mean: measure or read from the model at load.

    `weights`: "auto" (int4 from 4-bit files and bf16 by row count on CPU; bf16 on CUDA), "bf16", "int8" (on CUDA) or
    "float32" (the reference). `kv_cache`: "auto" (bf16, float32 beside float32 weights) or "fp8" (eight-bit keys and
    values, on CUDA). `max_num_batched_tokens`: tokens computed per step (speed of the machine at load when 0).
    `kv_cache_bytes` 0: a share of memory. `prompt_lookup`: tokens that followed before are verified in bulk
    (engine.decoding.ngram), where measured costs let that pay. `step_timeout_s`: a core whose step lasts longer is
    replaced (0: never). `tool_parser`, `reasoning_parser`: a name of engine.outputs, "none", or "auto" (chosen from the
    chat template). `processors`: further logits processors, each `module:name`.
    """

    model_path: Path
    model_name: str
    device: str = "cpu"
    weights: str = "auto"
    max_model_len: int = 0
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 0
    block_size: int = 16
    kv_cache: str = "auto"
    kv_cache_bytes: int = 0
    prefix_caching: bool = True
    batch_invariant: bool = False
    prompt_lookup: bool = False
    num_threads: int = 0
    max_waiting: int = 4096
    step_timeout_s: float = 120.0
    core_in_process: bool = False
    tool_parser: str = "auto"
    reasoning_parser: str = "auto"
    processors: tuple[str, ...] = ()
    structured: StructuredLimits = StructuredLimits()
