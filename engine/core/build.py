"""What a core's process or thread runs: load the model, size everything for it, then serve, with heartbeats."""

from __future__ import annotations

import gc
import traceback
from typing import TYPE_CHECKING

import torch

from engine.api.errors import EngineError, ModelLoadError
from engine.config import EngineConfig
from engine.core.encoder_loop import EncoderCore
from engine.core.heartbeat import HeartbeatThread
from engine.core.link import PipeChannel
from engine.core.loop import EngineCore
from engine.core.speech_loop import SpeechCore
from engine.core.turns import Turns
from engine.decoding.costs import StepCosts
from engine.decoding.drafter import LookupDrafter
from engine.execution.adapters import CoreAdapters, ImageAdapter
from engine.execution.cut_steps import CutSteps
from engine.execution.device import check_device, refused_if_too_large
from engine.execution.encoder_memory import encoder_tokens
from engine.execution.encoder_runner import EncoderRunner
from engine.execution.media import CoreMedia
from engine.execution.overlap import OverlappedSteps
from engine.execution.runner import ModelRunner
from engine.execution.spill_file import check_spill
from engine.gguf_pair import find_projector, text_file
from engine.kernels.cpu.integer_vectors import has_pairs
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.loading.loader import load_model
from engine.loading.safetensors_file import read_part
from engine.memory import page_out, trim_heap
from engine.messages import CoreFailed, CoreProgress, CoreReady, LoadModel
from engine.model_kind import ModelPurpose, read_purpose
from engine.models.config import ModelConfig
from engine.sampling.processors.registry import load_registry
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.transcriptions import Transcriptions
from engine.scheduling.whole_prompts import WholePrompts
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.core_grammars import CoreGrammars

if TYPE_CHECKING:
    from engine.execution.media import MediaEncoder

TORCH = "libtorch"
"""Libraries of which importing reads 77 MiB. Steps need 18 MiB of them, which the runner's first steps read again."""
COMPILER = "libllvmlite"
"""The library that compiles the kernels: that reads 70 MiB of it, and running the kernels none."""


def serve(config: EngineConfig, channel: PipeChannel) -> None:
    """Wait for LoadModel, load the model, report that it is ready, and run the loop until Shutdown.

    Report every error as CoreFailed.
    """
    heartbeat = HeartbeatThread(channel)
    heartbeat.start()
    try:
        if not any(isinstance(message, LoadModel) for message in channel.receive(block=True)):
            return  # Shutdown: no other message comes before
        with refused_if_too_large():
            core, ready = build_core(config, channel)
        heartbeat.core = core
        channel.send(ready)
        core.run()
    except EngineError as error:
        channel.send(CoreFailed(error.message, traceback.format_exc()))
    except Exception:
        channel.send(CoreFailed("the engine's core failed; its log has the details", traceback.format_exc()))
    finally:
        heartbeat.stopped.set()


def build_core(config: EngineConfig, channel: PipeChannel) -> tuple[EngineCore | EncoderCore | SpeechCore, CoreReady]:
    """Load the model and size everything for it. Raises ModelLoadError."""
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    processors = load_registry(config.processors)
    # NOTE: checked first, as loading may take minutes.
    check_device(config.device, config.weights, config.kv_cache, config.batch_invariant)
    check_spill(config)
    turns = make_turns(config)
    purpose = _purpose_of(config)
    if purpose.is_encoder:
        return _build_encoder_core(config, channel, turns)
    if purpose.speech is not None:
        return _build_speech_core(config, channel, turns)
    loaded = load_model(
        config.model_path,
        device=config.device,
        weights=config.weights,
        max_model_len=config.max_model_len,
        batch_invariant=config.batch_invariant,
        progress=lambda phase, fraction: channel.send(CoreProgress(phase, fraction)),
    )
    media = CoreMedia(
        _load_media_encoder(config, loaded.config, channel),
        device=config.device,
        in_thread=config.device == "cpu",
        max_tokens=encoder_tokens(config),
    )
    adapters_as, image_adapter = adapter_dtype(config), None
    if purpose.image_adapter is not None:
        image_adapter = ImageAdapter.read(purpose.image_adapter, loaded, adapters_as)
    if config.device == "cpu":
        page_out(TORCH)
    runner = ModelRunner(loaded, config)
    budget = runner.token_budget
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
        prefix_caching=True,  # the worker decides which runs share prefixes, by their cache roots
        groups=runner.groups,
        file=runner.spill_file,
        prefill_only_token_budget=runner.prefill_only_token_budget,
        cut_step_tokens=budget.cut_step_tokens if budget is not None else 0,
        mixed_step_tokens=budget.mixed_step_tokens if budget is not None else 0,
        drafter=drafter,
        is_complete=grammars.is_complete,
    )
    sampler = Sampler(logits_width, config.device, processors)
    overlap = OverlappedSteps(scheduler, runner, sampler) if config.device != "cpu" else None
    core = EngineCore(
        scheduler,
        runner,
        sampler,
        channel,
        drafter=drafter,
        grammars=grammars,
        adapters=CoreAdapters(loaded, runner, adapters_as, channel.send, image_adapter),
        overlap=overlap,
        cuts=CutSteps(runner, config.max_step_wait_s) if config.device == "cpu" else None,
        turns=turns,
        token_budget=budget,
        media=media,
    )
    gc.collect()
    trim_heap()
    page_out(COMPILER)
    gc.freeze()  # objects of loading live on: collections during steps need not visit them
    gc.enable()
    specs = sampler.processor_specs
    return core, CoreReady(
        logits_width,
        runner.max_model_len,
        runner.num_blocks,
        specs,
        runner.hidden_size,
        runner.computed_by(),
        runner.groups.chunk_tokens,
    )


def _load_media_encoder(config: EngineConfig, model: ModelConfig, channel: PipeChannel) -> MediaEncoder | None:
    """Load the part of a model that turns media into inputs of its decoder; None if it has none."""
    purpose, path = _purpose_of(config), text_file(config.model_path)
    if not purpose.modalities:
        return None
    # NOTE: imported here, as it takes seconds and hundreds of MiB that other models save.
    from engine.loading.projector_model import pair_model
    from engine.models.transformers_backend.media_encoder import TransformersMediaEncoder, folder_model
    from engine.models.transformers_backend.qwen_media_encoder import QwenMediaEncoder
    from engine.models.transformers_backend.sound_encoder import SoundEncoder
    from engine.models.transformers_backend.ultravox_encoder import PREFIXES as ULTRAVOX_PREFIXES
    from engine.models.transformers_backend.ultravox_encoder import UltravoxEncoder

    device, dtype = torch.device(config.device), media_dtype(config)
    if purpose.takes_sounds:
        channel.send(CoreProgress("loading the encoder of sound", 1.0))
        if purpose.is_ultravox:
            return UltravoxEncoder.load(path, read_part(path, ULTRAVOX_PREFIXES), device, dtype)
        return SoundEncoder.load(path, device, dtype)
    channel.send(CoreProgress("loading the image encoder", 1.0))
    if purpose.image_adapter is not None:
        from engine.models.transformers_backend.phi_media_encoder import PREFIX, PhiMediaEncoder

        return PhiMediaEncoder.load(path, read_part(path, PREFIX), device, dtype)
    kind = QwenMediaEncoder if model.rotations[0].sections else TransformersMediaEncoder
    projector = find_projector(path, config.projector)
    whole = folder_model(path, dtype) if projector is None else pair_model(projector, path, dtype)
    return kind(whole, device, dtype)


def media_dtype(config: EngineConfig) -> torch.dtype:
    """Return the dtype of the encoder of media: bfloat16 where that is faster, unless float32 is asked for."""
    is_wide = config.weights == "float32" or (config.device == "cpu" and not has_pairs())
    return torch.float32 if is_wide else torch.bfloat16


def adapter_dtype(config: EngineConfig) -> torch.dtype:
    """Return the dtype of the matrices of adapters."""
    return torch.float32 if config.weights == "float32" else torch.bfloat16


def speech_dtype(config: EngineConfig) -> torch.dtype:
    """Return the dtype of a model of speech. Raises ModelLoadError for weights that are not served."""
    if config.weights not in ("auto", "float32", "bf16"):
        raise ModelLoadError(
            f"{config.model_path}: the weights of models of speech are auto, float32, bf16, got {config.weights}: set "
            "LIGHTCONE_WEIGHTS"
        )
    is_wide = config.weights == "float32" or (config.weights == "auto" and config.device == "cpu")
    return torch.float32 if is_wide else torch.bfloat16


def make_turns(config: EngineConfig) -> Turns | None:
    """Return the core's turns among those that name the same file; None if it names none, or on a device.

    Where torch computes products in float32 or the batch-invariant mode is promised, torch keeps all its threads: their
    number may change the last bits of its results. Raises ModelLoadError.
    """
    if config.turns_file is None or config.device != "cpu":
        return None
    is_exact = config.batch_invariant or config.weights == "float32"

    def limit(num_threads: int) -> None:
        if KERNEL_THREADS.has_own or not is_exact:
            KERNEL_THREADS.limit(num_threads)

    return Turns(config.turns_file, torch.get_num_threads(), limit)


def _purpose_of(config: EngineConfig) -> ModelPurpose:
    """Return what a model is for; of one that cannot be read, to chat: loading it says why."""
    try:
        return read_purpose(config.model_path, config.projector)
    except ModelLoadError:
        return ModelPurpose()


def _build_encoder_core(
    config: EngineConfig, channel: PipeChannel, turns: Turns | None
) -> tuple[EncoderCore, CoreReady]:
    """Load a model that sees whole texts and generates nothing. Raises ModelLoadError."""
    runner = EncoderRunner.load(config)
    # NOTE: products of torch may depend on how many rows are computed together.
    most = 1 if config.batch_invariant else config.max_num_seqs
    prompts = WholePrompts(runner.max_num_batched_tokens, most, config.max_waiting)
    gc.collect()
    trim_heap()
    gc.freeze()
    gc.enable()
    ready = CoreReady(runner.vocab_size, runner.max_model_len, 0, [], runner.size, runner.computed_by())
    return EncoderCore(prompts, runner, channel, turns=turns), ready


def _build_speech_core(config: EngineConfig, channel: PipeChannel, turns: Turns | None) -> tuple[SpeechCore, CoreReady]:
    """Load a model that writes down speech. Raises ModelLoadError."""
    # NOTE: imported here, as it takes seconds and hundreds of MiB that other models save.
    from engine.models.speech.registry import load_speech_model

    channel.send(CoreProgress("loading the model of speech", 0.5))
    model = load_speech_model(config.model_path, torch.device(config.device), speech_dtype(config))
    gc.collect()
    trim_heap()
    gc.freeze()
    gc.enable()
    computed_by = "; ".join(f"{name} {text}" for name, text in model.forms().items())
    ready = CoreReady(model.vocab_size, model.max_tokens, 0, [], 0, computed_by)
    return SpeechCore(model, Transcriptions(), channel, turns=turns), ready
