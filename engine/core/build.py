"""The core in a process or thread of its own: its model loaded and everything sized for it, then the loop, with a heartbeat beside both."""

from __future__ import annotations

import gc
import threading
import time
import traceback
from dataclasses import dataclass

import torch

from engine.api.errors import EngineError
from engine.config import EngineConfig
from engine.core.link import CoreChannel
from engine.core.loop import EngineCore
from engine.core.step_watch import StepWatch
from engine.decoding.costs import StepCosts
from engine.decoding.drafter import LookupDrafter
from engine.execution.device import check_device, refused_if_too_large
from engine.execution.overlap import OverlappedSteps
from engine.execution.runner import ModelRunner
from engine.loading.loader import load_model
from engine.memory import page_out, trim_heap
from engine.messages import CoreFailed, CoreProgress, CoreReady, Heartbeat
from engine.sampling.processors.registry import load_registry
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.core_grammars import CoreGrammars

HEARTBEAT_S = 1.0
TORCH = "libtorch"
"""The libraries of which importing reads 77 MiB. The runner's first steps, before the core is ready, read what steps need: 18."""
COMPILER = "libllvmlite"
"""The library that has made the kernels: 70 MiB of it are read for that, and none for running them."""


def serve(config: EngineConfig, channel: CoreChannel) -> None:
    """Load the model, say so, and run the loop until Shutdown. Whatever goes wrong is reported as CoreFailed."""
    is_over, loading = threading.Event(), StepWatch()
    beats = HeartbeatThread(channel, is_over, loading)
    threading.Thread(target=beats.beat, name="core-heartbeat", daemon=True).start()
    try:
        with refused_if_too_large():
            core, ready = build_core(config, channel)
        beats.watch = core.watch
        channel.send(ready)
        core.run()
    except EngineError as error:
        channel.send(CoreFailed(error.message, traceback.format_exc()))
    except Exception:
        channel.send(CoreFailed("the engine's core failed; its log has the details", traceback.format_exc()))
    finally:
        is_over.set()


def build_core(config: EngineConfig, channel: CoreChannel) -> tuple[EngineCore, CoreReady]:
    """Load the model and size everything for it. Raises ModelLoadError."""
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    processors = load_registry(config.processors)
    check_device(
        config.device, config.weights, config.kv_cache, config.batch_invariant
    )  # before the minutes that loading may take
    loaded = load_model(
        config.model_path,
        device=config.device,
        weights=config.weights,
        max_model_len=config.max_model_len,
        batch_invariant=config.batch_invariant,
        progress=lambda phase, fraction: channel.send(CoreProgress(phase, fraction)),
    )
    if config.device == "cpu":
        page_out(TORCH)
    runner = ModelRunner(loaded, config)
    costs = StepCosts.measure(runner.step_timer(), runner.max_model_len) if config.device == "cpu" else StepCosts.flat()
    drafter = LookupDrafter(costs, config.prompt_lookup)
    logits_width = loaded.config.vocab_size
    grammars = CoreGrammars(
        lambda: Vocabulary.from_path(config.model_path, logits_width), fills_ahead=config.device != "cpu"
    )
    scheduler = Scheduler(
        runner.num_blocks,
        config.block_size,
        runner.max_num_batched_tokens,
        config.max_num_seqs,
        config.max_waiting,
        prefix_caching=True,  # who shares with whom is the worker's business: it gives each tenant, or each run, a root of its own
        prefill_only_token_budget=runner.prefill_only_token_budget,
        drafter=drafter,
        is_complete=grammars.is_complete,
    )
    sampler = Sampler(logits_width, config.device, processors)
    ahead = OverlappedSteps(scheduler, runner, sampler) if config.device != "cpu" else None
    core = EngineCore(
        scheduler, runner, sampler, channel, drafter=drafter, grammars=grammars, ahead=ahead, pace=runner.pace
    )
    gc.collect()
    trim_heap()
    page_out(COMPILER)
    gc.freeze()  # what loading has left is never garbage: collections during steps need not look at it
    ready = CoreReady(
        logits_width,
        runner.max_model_len,
        runner.num_blocks,
        runner.max_num_batched_tokens,
        config.max_num_seqs,
        sampler.processor_specs,
        runner.hidden_size,
    )
    return core, ready


@dataclass(slots=True)
class HeartbeatThread:
    """Sends heartbeats from a thread of its own, with what the `watch` says; while the model is loaded that is nothing."""

    channel: CoreChannel
    is_over: threading.Event
    watch: StepWatch

    def beat(self) -> None:
        while not self.is_over.wait(HEARTBEAT_S):
            self.channel.send(Heartbeat(time.time(), self.watch.elapsed_s))
