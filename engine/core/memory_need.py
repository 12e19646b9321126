"""`python -m engine.core.memory_need QUESTION`: say what a model needs in memory, as JSON, without reading its weights.

QUESTION is a JSON object: `config`, as `engine.core.link.pack_config` writes it, and `memory_bytes`, what there is.
Prints an object with the fields of `MemoryNeed` and exits with 0; or prints the problem and exits with 1.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from engine.api import MemoryNeed
from engine.api.errors import ModelLoadError
from engine.config import EngineConfig
from engine.core.link import unpack_config
from engine.loading.loader import open_checkpoint

BASE_BYTES = 300 << 20
CACHE_SHARE = 0.25
TYPICAL_TOKENS = 512


def memory_need(config: EngineConfig, memory_bytes: int) -> MemoryNeed:
    """Return what a core of this configuration needs. Raises ModelLoadError."""
    _, model, _ = open_checkpoint(config.model_path)
    path = config.model_path
    files = [path] if path.is_file() else [file for file in path.iterdir() if file.is_file()]
    per_token = sum(2 * 2 * layer.attention.num_kv_heads * layer.attention.head_size for layer in model.layers)
    context = config.max_model_len or model.max_position
    wanted = per_token * max(context, config.max_num_seqs * TYPICAL_TOKENS)
    cache = config.kv_cache_bytes or min(int(memory_bytes * CACHE_SHARE), wanted)
    return MemoryNeed(
        weights_bytes=int(1.1 * sum(file.stat().st_size for file in files)),
        mapped_bytes=0,
        cache_bytes=cache,
        cache_bytes_per_token=per_token,
        scratch_bytes=0,
        base_bytes=BASE_BYTES,
        context=min(context, cache // per_token),
        max_context=model.max_position,
    )


def main(question: str) -> int:
    """Answer and return the exit code."""
    values = json.loads(question)
    try:
        need = memory_need(unpack_config(json.dumps(values["config"]).encode()), values["memory_bytes"])
    except ModelLoadError as error:
        sys.stdout.write(f"{error.message}\n")
        return 1
    sys.stdout.write(json.dumps(dataclasses.asdict(need)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
