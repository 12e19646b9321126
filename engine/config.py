"""The settings of an engine, fixed before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.api.media import MediaLimits


@dataclass(frozen=True, slots=True)
class StructuredLimits:
    """The limits of a constraint of an answer, and of compiling it."""

    schema_bytes: int = 256 << 10
    schema_depth: int = 64
    tag_depth: int = 80
    schema_nodes: int = 20_000
    """Schemas, properties, enum values and branches."""
    schema_bound: int = 100_000
    """The largest `minItems`, `maxLength` and the like."""
    repeats: int = 10_000
    """The product of the nested bounds of a regular expression or grammar."""
    regex_bytes: int = 16 << 10
    grammar_bytes: int = 256 << 10
    choice_strings: int = 10_000
    choice_bytes: int = 1 << 20
    tool_bytes: int = 1 << 20
    depth: int = 64
    """Nested brackets of a regular expression or grammar."""
    compile_timeout_s: float = 5.0
    compile_bytes: int = 512 << 20
    cache_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The settings of one engine; 0 means: measure or read from the model at load."""

    model_path: Path
    model_name: str
    projector: str = ""
    """The name of one of several projectors beside a GGUF file, or "none": the model reads text alone."""
    device: str = "cpu"
    weights: str = "auto"
    """ "auto" (integers of four to eight bits, or floats; on CUDA bf16), "bf16", "int8" (on CUDA) or "float32"."""
    max_model_len: int = 0
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 0
    """Tokens computed per step."""
    block_size: int = 16
    kv_cache: str = "auto"
    """ "auto" (bf16, float32 beside float32 weights) or "fp8" (eight-bit keys and values, on CUDA)."""
    kv_cache_bytes: int = 0
    """0: a share of the memory."""
    kv_spill_bytes: int = 0
    """The size of a file in `kv_spill_folder` that takes what the prefix cache gives away (on a CPU); 0: none."""
    kv_spill_folder: Path | None = None
    """None: the system's folder of temporary files."""
    prefix_caching: bool = True
    batch_invariant: bool = False
    prompt_lookup: bool = False
    """Verify tokens that followed the same words before (engine.decoding.sources) where measured costs let that pay."""
    num_threads: int = 0
    turns_file: Path | None = None
    """A file of a temporary folder that cores of the same processors name: those that are busy share the threads
    (on a CPU; engine.core.turns). It stays empty. None: the core computes with all threads whatever others do."""
    max_waiting: int = 4096
    max_step_wait_s: float = 0.25
    """How long an arrival or an abort may wait for a step of prompts alone that is cut between layers (on a CPU), and
    decodes for a step with prompts."""
    step_timeout_s: float = 120.0
    """A core whose step lasts longer is replaced; 0: never."""
    core_in_process: bool = False
    """The core is in a thread of the caller's process, as in tests; it then starts no kernel threads."""
    tool_parser: str = "auto"
    """A name of engine.outputs, "none", or "auto" (chosen by the chat template)."""
    reasoning_parser: str = "auto"
    """As `tool_parser`."""
    processors: tuple[str, ...] = ()
    """Further logits processors, each `module:name`."""
    structured: StructuredLimits = StructuredLimits()
    media: MediaLimits = MediaLimits()
