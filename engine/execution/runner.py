"""The model runner: takes a plan, returns the logits of the rows that sample.

Knows the model, the cache and the device; nothing of requests or sampling. Built once per core; one `forward` per step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import thread_time
from typing import TYPE_CHECKING

import torch

from engine.api.errors import ModelLoadError
from engine.attention.backend import cache_dtype, make_backend
from engine.attention.torch_cpu import TorchCpuAttention
from engine.config import EngineConfig
from engine.execution.batch import BatchBuilder, StepBatch, dummy_sequence
from engine.execution.encoder_memory import encoder_bytes
from engine.execution.kv_cache import bytes_per_block, free_memory, size_cache, step_bytes
from engine.execution.prompts import PromptResults, has_prompt_results, pool_states, score_prompts
from engine.execution.spill_file import SpillFile, make_spill_file
from engine.execution.step_programs import StepInFlight, StepPrograms
from engine.execution.step_sizes import (
    MIN_STEP_TOKENS,
    cache_groups,
    device_step_tokens,
    least_step_tokens,
    most_cpu_tokens,
    most_prefill_only_tokens,
)
from engine.execution.token_budget import PREFILL_ONLY_STEPS, STEP_SECONDS, AdaptiveTokenBudget
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.layers.adapters import Adapters, CpuAdapters
from engine.sequence import Chunk, SequenceStatus, StepPlan

if TYPE_CHECKING:
    from engine.execution.cuda_graphs import DecodeGraphs
    from engine.execution.overlap import DeviceTokens
    from engine.loading.loader import LoadedModel

logger = logging.getLogger(__name__)

TRIES = 3
FIRST_PROMPT = 40
"""Tokens of the first measured step of a CPU. If it takes as long as a step may, the budget is the least, and nothing
more is tried."""


class ModelRunner:
    """A loaded model with its cache. `num_blocks`, `max_model_len` and `hidden_size` are fixed once it is built."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        """Raises ModelLoadError if the memory does not suffice for a useful context, or no step gives finite logits."""
        model = loaded.config
        self._path = config.model_path
        self._decoder = loaded.decoder
        self._weight_forms = loaded.weight_forms
        self._backend = loaded.backend
        self._device = torch.device(config.device)
        self._block_size = config.block_size
        shapes = [layer.attention for layer in model.layers]
        dtype = cache_dtype(config.weights, config.kv_cache, self._device)
        self.groups = cache_groups(model, config, self._device)
        block_bytes = bytes_per_block(self.groups, dtype)
        size = size_cache(
            block_bytes=block_bytes,
            groups=self.groups,
            model_len=loaded.max_model_len,
            wanted_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            cache_bytes=config.kv_cache_bytes,
            free_bytes=max(0, free_memory(self._device) - self._reserved_bytes(loaded, config)),
            is_cpu=self._device.type == "cpu",
        )
        self.num_blocks = size.num_blocks
        self.max_model_len = size.max_model_len
        self.hidden_size = model.hidden_size
        self._attention = make_backend(
            self._device,
            shapes,
            num_blocks=size.num_blocks,
            groups=self.groups,
            dtype=dtype,
            batch_invariant=config.batch_invariant,
        )
        self.spill_file: SpillFile | None = None
        self._kept_hidden: torch.Tensor | None = None
        """Hidden states of the last step (T, E), if it has results about prompts."""
        self._graphs: DecodeGraphs | None = None
        self._programs: StepPrograms | None = None
        self._adapters: Adapters | None = None
        self._adapted_programs: StepPrograms | None = None
        """Of steps in which rows have adapters."""
        if isinstance(self._attention, TorchCpuAttention):
            if loaded.uses_own_kernels and self._attention.has_vectors and not config.core_in_process:
                KERNEL_THREADS.start(torch.get_num_threads())
            self.spill_file = make_spill_file(config, self.groups, self._attention.keys, self._attention.values)
            self._programs = StepPrograms(loaded.decoder, self._attention, size.max_model_len)
        self._batches = BatchBuilder(self.groups, self._device)
        self._cut_batches = BatchBuilder(self.groups, self._device)
        """Of the step in flight, which no other step may overwrite."""
        most_prefill_only = most_prefill_only_tokens(config, self._device)
        # NOTE: a recording of other kernels would be dropped, and keeps all of torch's intermediate tensors.
        if self._programs is not None and loaded.uses_own_kernels:
            self._programs.prepare_many(most_prefill_only)
        if self._programs is None or not loaded.uses_own_kernels or config.max_num_batched_tokens:
            # The first step of a process takes a tenth of a second more, so it is not the one that is measured. With a
            # configured budget none is: this one shows whether the logits are finite.
            self._run_prompt(1)
        self.token_budget = None
        if config.max_num_batched_tokens:
            self.max_num_batched_tokens = config.max_num_batched_tokens
        else:
            self.token_budget = self._make_token_budget(config, most_prefill_only, model.num_layers)
            self.max_num_batched_tokens = self.token_budget.max_num_batched_tokens
        self.prefill_only_token_budget = min(PREFILL_ONLY_STEPS * self.max_num_batched_tokens, most_prefill_only)
        if self._programs is not None:
            self._programs.prepare_few(config.max_num_seqs)
        if self._device.type == "cuda":
            self.forward(self._longest_step())  # allocates the memory that serving must not lack
            if loaded.decoder.is_recordable:
                self._graphs = self._capture_graphs(config.max_num_seqs)
        logger.info(
            "KV cache: %d blocks of %d tokens (%d MiB), context %d, %d tokens a step",
            self.num_blocks,
            config.block_size,
            self.num_blocks * block_bytes >> 20,
            self.max_model_len,
            self.max_num_batched_tokens,
        )
        logger.info("computed by: %s", self.computed_by())

    def computed_by(self) -> str:
        """Say on one line which form each part of the model runs in."""
        return "; ".join(f"{name} {text}" for name, text in self.forms().items())

    def forms(self) -> dict[str, str]:
        """Say which form each part of the model runs in."""
        steps = "captured graphs" if self._graphs is not None else "layer by layer"
        return {
            "backend": self._backend,
            "weights": self._weight_forms,
            "attention": self._attention.summary(),
            "steps": steps if self._programs is None else self._programs.summary(),
        }

    @torch.inference_mode()
    def forward(self, plan: StepPlan, fed: DeviceTokens | None = None) -> torch.Tensor:
        """Compute a step; return logits (R, V) float32 of the chunks that sample, in the plan's order.

        A chunk has a row for its last known token and one for each draft; only these rows go through the vocabulary
        projection. `fed`: the input tokens, for a plan that `accepts_device_tokens`.
        """
        keeps_hidden = has_prompt_results(plan)
        self._kept_hidden = None
        if self._graphs is not None and self._graphs.takes(plan) and not keeps_hidden:
            return self._decoder.logits(self._graphs.forward(plan, fed))
        assert fed is None
        batch = self._batches.build(plan)
        hidden = None
        if (programs := self._programs_of(batch)) is not None:
            hidden = programs.forward(batch, needs_hidden=_needs_hidden(plan))
        if hidden is None:
            attention, adapters = self._attention.begin_step(batch.layout), None
            if batch.adapters and self._adapters is not None:
                adapters = self._adapters.begin_step(batch.adapters, len(batch.token_ids))
            hidden = self._decoder.forward(batch.token_ids, batch.positions, attention, adapters, batch.vectors)
        self._kept_hidden = hidden if keeps_hidden else None
        if batch.sample_rows is not None:
            hidden = hidden.index_select(0, batch.sample_rows)
        return self._decoder.logits(hidden)

    def can_cut(self, num_tokens: int) -> bool:
        """Return True if a step of so many tokens can be computed layer by layer, with others in between."""
        programs = self._programs if self._adapted_programs is None else self._adapted_programs
        return programs is not None and programs.can_cut(num_tokens)

    def serve_adapters(self, adapters: Adapters) -> None:
        """Compute the rows of sequences with an `adapter_index` by these adapters from now on."""
        self._adapters = adapters
        if self._programs is not None and isinstance(adapters, CpuAdapters):
            self._adapted_programs = self._programs.with_adapters(adapters)

    def _programs_of(self, batch: StepBatch) -> StepPrograms | None:
        if batch.layout.whole_spans:
            return None
        return self._adapted_programs if batch.adapters else self._programs

    @torch.inference_mode()
    def begin(self, plan: StepPlan) -> StepInFlight:
        """Begin such a step. Before it ends no other is begun, and the blocks of its sequences stay theirs."""
        batch = self._cut_batches.build(plan)
        programs = self._programs_of(batch)
        assert programs is not None
        return programs.begin(batch, needs_hidden=_needs_hidden(plan))

    @torch.inference_mode()
    def finish(self, plan: StepPlan, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits as `forward` does, of the sequences that still run. hidden: (T, E), of the step that ends."""
        self._kept_hidden = hidden if has_prompt_results(plan) else None
        rows, first = list[int](), 0
        for chunk in plan.chunks:
            last = first + chunk.num_positions
            if chunk.samples and chunk.sequence.status is SequenceStatus.RUNNING:
                rows.extend(range(first + chunk.num_tokens - 1, last))
            first = last
        return self._decoder.logits(hidden[rows])

    def accepts_device_tokens(self, plan: StepPlan) -> bool:
        """Return True if a step can take input tokens that only the device knows."""
        return self._graphs is not None and self._graphs.takes(plan)

    def prompt_results(self, plan: StepPlan) -> PromptResults:
        """Return what the last step, of this plan, has found about prompts. Call once a step."""
        hidden = self._kept_hidden
        if hidden is None:
            return PromptResults()
        with torch.inference_mode():
            return PromptResults(
                score_prompts(plan, hidden, self._decoder.logits),
                pool_states(plan, hidden, self._decoder.normed, self._decoder.logits),
            )

    def step_timer(self) -> Callable[[int], float]:
        """Return a function that measures the seconds of a step by its rows (CPU only)."""
        assert isinstance(self._attention, TorchCpuAttention)
        return StepPrograms(self._decoder, self._attention, self.max_model_len).time_step

    def _capture_graphs(self, max_num_seqs: int) -> DecodeGraphs:
        """Capture the decode steps."""
        from engine.execution.cuda_graphs import CudaCapture, DecodeGraphs

        table_width = -(-self.max_model_len // self._block_size)
        return DecodeGraphs(self._decoder, self._attention, max_num_seqs, table_width, CudaCapture())

    def _reserved_bytes(self, loaded: LoadedModel, config: EngineConfig) -> int:
        """Return the memory to leave for the longest step and the encoder of images.

        0 on a CPU, where the cache takes a small share.
        """
        if self._device.type == "cpu":
            return 0
        num_tokens = most_prefill_only_tokens(config, self._device)
        longest = step_bytes(loaded.config, num_tokens=num_tokens, dtype=loaded.dtype)
        return longest + encoder_bytes(config, loaded.dtype)

    def _affordable_tokens(self, longest: int) -> float:
        """Return the prompt tokens of STEP_SECONDS on a CPU, by doubling, up to `longest`."""
        num_tokens = min(FIRST_PROMPT, longest)
        seconds = self._run_prompt(num_tokens)
        if seconds < STEP_SECONDS:
            num_tokens = min(MIN_STEP_TOKENS, longest)
        while seconds < STEP_SECONDS:
            seconds = min(self._run_prompt(num_tokens) for _ in range(TRIES))
            if seconds >= STEP_SECONDS / 2 or num_tokens >= longest:
                break
            num_tokens = min(2 * num_tokens, longest)
        return num_tokens * STEP_SECONDS / max(seconds, 1e-6)

    def _make_token_budget(self, config: EngineConfig, most_prefill_only: int, num_layers: int) -> AdaptiveTokenBudget:
        """Return the budget to adapt while serving, at first by the speed of a CPU, or the memory of a device.

        On a device it is never above the step that has allocated the memory.
        """
        least = least_step_tokens(config.max_num_seqs)
        if self._device.type == "cpu":
            most = most_cpu_tokens(config.max_num_seqs)
            affordable = self._affordable_tokens(min(most, self.max_model_len))
            first = max(least, min(most, int(affordable) // self._block_size * self._block_size))
        else:
            first = most = device_step_tokens(self._device)
            affordable = float(first)
        return AdaptiveTokenBudget(
            first,
            min(least, first),
            most,
            most_prefill_only,
            self._block_size,
            affordable=affordable,
            max_step_wait_s=config.max_step_wait_s,
            num_cuts=num_layers,
            most_cut=self._programs.most_cut_rows if self._programs is not None else 0,
        )

    def _longest_step(self) -> StepPlan:
        """Plan a step with the most tokens, at the ends of the longest contexts."""
        counts = [self.max_model_len] * (self.prefill_only_token_budget // self.max_model_len)
        if rest := self.prefill_only_token_budget % self.max_model_len:
            counts.append(rest)
        return StepPlan(tuple(self._end_of_prompt(self.max_model_len, count) for count in counts))

    def _run_prompt(self, num_tokens: int) -> float:
        """Compute a prompt of token 0; return the processor seconds of this thread, which no other load affects.

        Raises ModelLoadError for a model whose numbers are finite, but not what it computes of them.
        """
        start = thread_time()
        logits = self.forward(StepPlan((self._end_of_prompt(num_tokens, num_tokens),)))
        seconds = thread_time() - start
        if not logits.max().isfinite():
            raise ModelLoadError(
                f"{self._path}: computes logits that are NaN or infinite: its weights, or numbers of its description, "
                "are damaged"
            )
        return seconds

    def _end_of_prompt(self, length: int, num_new: int) -> Chunk:
        """Return the end of a prompt of token 0, in the first blocks: these are written before they are read."""
        sequence = dummy_sequence(0, [0] * length, self.groups.lone_table(length))
        return Chunk(sequence, length - num_new, num_new, True)


def _needs_hidden(plan: StepPlan) -> bool:
    return has_prompt_results(plan) or any(chunk.samples for chunk in plan.chunks)
