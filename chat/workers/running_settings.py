"""What a core was loaded with, as texts by the names that operators know."""

from __future__ import annotations

from engine.config import EngineConfig


def running_settings(config: EngineConfig) -> dict[str, str]:
    """Return the settings of a configuration that a page shows. An empty text: measured or read at load."""

    def number(value: int) -> str:
        return str(value) if value else ""

    return {
        "path": str(config.model_path),
        "max_model_len": number(config.max_model_len),
        "LIGHTCONE_DEVICE": config.device,
        "LIGHTCONE_MMPROJ": config.projector,
        "LIGHTCONE_WEIGHTS": config.weights,
        "LIGHTCONE_KV_CACHE": config.kv_cache,
        "LIGHTCONE_KV_CACHE_BYTES": number(config.kv_cache_bytes),
        "LIGHTCONE_KV_SPILL_BYTES": number(config.kv_spill_bytes),
        "LIGHTCONE_MAX_NUM_SEQS": str(config.max_num_seqs),
        "LIGHTCONE_MAX_NUM_BATCHED_TOKENS": number(config.max_num_batched_tokens),
        "LIGHTCONE_NUM_THREADS": number(config.num_threads),
        "LIGHTCONE_PREFIX_CACHING": str(config.prefix_caching),
        "LIGHTCONE_BATCH_INVARIANT": str(config.batch_invariant),
        "LIGHTCONE_PROMPT_LOOKUP": str(config.prompt_lookup),
    }
