"""What a model worker needs first: the engine's configuration, and its core, which is slow to start.

Called by the entry point of worker processes, before Celery and the engine are imported.
"""

from __future__ import annotations

import fcntl
import json
import logging
import sys
from pathlib import Path

from django.conf import settings

from chat.catalog.model_choice import NoModel, model_choice
from chat.engine_check import engine_check
from engine.api import MemoryNeed
from engine.api.errors import ModelLoadError
from engine.config import EngineConfig, StructuredLimits
from engine.core.link import ProcessLink, pack_config

logger = logging.getLogger(__name__)

NEED_S = 120


def core_start() -> ProcessLink | None:
    """Start a core with the configuration of the settings; None if that fails, which the worker then reports itself."""
    try:
        return ProcessLink(engine_config())
    except (NoModel, OSError):
        return None


def engine_config() -> EngineConfig:
    """Return the engine configuration that the settings describe. Raises NoModel."""
    choice = model_choice(
        path=settings.LIGHTCONE_MODEL, name=settings.LIGHTCONE_MODEL_NAME, store=settings.LIGHTCONE_MODEL_STORE
    )
    return EngineConfig(
        model_path=Path(choice.path),
        model_name=choice.name,
        projector=settings.LIGHTCONE_MMPROJ,
        device=settings.LIGHTCONE_DEVICE,
        weights=settings.LIGHTCONE_WEIGHTS,
        max_model_len=settings.LIGHTCONE_MAX_MODEL_LEN,
        max_num_seqs=settings.LIGHTCONE_MAX_NUM_SEQS,
        max_num_batched_tokens=settings.LIGHTCONE_MAX_NUM_BATCHED_TOKENS,
        kv_cache=settings.LIGHTCONE_KV_CACHE,
        kv_cache_bytes=settings.LIGHTCONE_KV_CACHE_BYTES,
        kv_spill_bytes=settings.LIGHTCONE_KV_SPILL_BYTES,
        kv_spill_folder=settings.LIGHTCONE_KV_SPILL_FOLDER,
        prefix_caching=settings.LIGHTCONE_PREFIX_CACHING,
        batch_invariant=settings.LIGHTCONE_BATCH_INVARIANT,
        prompt_lookup=settings.LIGHTCONE_PROMPT_LOOKUP,
        max_step_wait_s=settings.LIGHTCONE_MAX_STEP_WAIT_MS / 1000,
        turns_file=_turns_file(),
        step_timeout_s=float(settings.LIGHTCONE_STEP_TIMEOUT),
        num_threads=settings.LIGHTCONE_NUM_THREADS,
        max_waiting=settings.LIGHTCONE_MAX_WAITING,
        tool_parser=settings.LIGHTCONE_TOOL_PARSER,
        reasoning_parser=settings.LIGHTCONE_REASONING_PARSER,
        processors=tuple(settings.LIGHTCONE_LOGITS_PROCESSORS),
        structured=_structured_limits(),
        media=settings.LIGHTCONE_MEDIA_LIMITS,
    )


def need_of(config: EngineConfig, memory_bytes: int) -> MemoryNeed:
    """Return what a model of this configuration needs of so many bytes of memory. Raises ModelLoadError."""
    module, argument = "engine.core.memory_need", config_text(config)
    is_fine, output = engine_check(module, argument, config.model_path.name, NEED_S, str(memory_bytes))
    if not is_fine:
        raise ModelLoadError(output)
    return MemoryNeed(**json.loads(output))


def config_text(config: EngineConfig) -> str:
    """Return the argument of `engine.core.model_check`."""
    return pack_config(config).decode()


def _turns_file() -> Path | None:
    """Return the file by which the cores of this machine share its processors; None where they cannot (not Linux)."""
    if settings.LIGHTCONE_DEVICE != "cpu" or sys.platform != "linux":
        return None
    place: Path = settings.DATA_DIR / "run" / "turns"
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with place.open("wb") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # another process tries it at this moment
    except OSError as error:
        logger.warning("cores do not share processors: %s cannot be locked (%s)", place, error.strerror)
        return None
    return place


def _structured_limits() -> StructuredLimits:
    limits = settings.LIGHTCONE_LIMITS
    return StructuredLimits(
        schema_bytes=limits.max_schema_bytes,
        schema_depth=limits.max_schema_depth,
        tag_depth=limits.max_structural_tag_depth,
        schema_nodes=limits.max_schema_nodes,
        schema_bound=limits.max_schema_bound,
        repeats=limits.max_repeat,
        regex_bytes=limits.max_regex_bytes,
        grammar_bytes=limits.max_grammar_bytes,
        choice_strings=limits.max_choice_strings,
        choice_bytes=limits.max_choice_bytes,
        tool_bytes=limits.max_tool_bytes,
        compile_timeout_s=limits.grammar_compile_timeout,
        cache_bytes=limits.grammar_cache_bytes,
    )
