"""Steps as recorded programs: one call runs the kernels of all layers, if every operator is one of ours.

A row is a token of any sequence: decodes, drafts and pieces of prompts share the program of their row count.

The Python code between two kernels takes a fifth of a step of one row on a CPU, a tenth of one of 200 prompt tokens. So
the operators of a row count are recorded, without computing, over inputs that are no numbers. The next step is computed
both ways and compared. From then on only the program runs, over buffers with the step's inputs. A program that missed
an operation (a product or a bias that torch computes) gives other results and is dropped. The smallest row counts are
recorded and compared while the model loads, others when they first occur.

The operations for few rows depend on the row count. Those for many do not, so all larger counts share one program,
which is made while the model loads. In slow models it computes those from LEAST_SHARED_ROWS on too that have none of
their own. A step of it may be computed layer by layer, with other steps in between.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from time import perf_counter, thread_time

import torch

from engine.attention.torch_cpu import FixedRows, TorchCpuAttention
from engine.execution.batch import StepBatch, dummy_batch
from engine.kernels.cpu import operators
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.layers.adapters import CpuAdapters, CpuStepAdapters
from engine.models.decoder import Decoder, add_deep, num_deep

logger = logging.getLogger(__name__)

FEW_ROWS = 32
"""Up to here a row count may have its own program; above, weights have one form for all counts."""
LEAST_SHARED_ROWS = 9
"""Where a step of so many rows takes LONG_STEP_S, the program of many rows computes it, and larger counts that got no
program while the model loaded. To make one would cost a second step at its first use, over whatever context that has.
"""
MANY_ROWS = 512
"""Larger steps are computed without a program: the time saved is not worth the memory of its buffers."""
LOADING_S = 0.25
"""The time limit for programs of few rows at load: enough for most of a model of 135 M parameters, and for some 3 of
one of 1.5 B. The program of many rows adds the time of two steps of FEW_ROWS + 1.
"""
LONG_STEP_S = 0.02
"""Python is less than a tenth of such a step, and what a program of its own row count saves is less."""


class StepProgram:
    """The program of steps of R rows. Input buffers: those of the layers, and the rows of attention and of adapters."""

    def __init__(
        self, decoder: Decoder, rows: FixedRows, num_rows: int, adapters: CpuStepAdapters | None = None
    ) -> None:
        """Record the layers; `adapters` for steps in which rows have some."""
        self.num_rows = num_rows
        self._decoder = decoder
        self._rows = rows
        self._adapters = adapters
        nothing = torch.zeros(num_rows, dtype=torch.int64)
        self._inputs = decoder.begin(nothing, nothing)
        # NOTE: what torch computes of these while the layers are recorded stays NaN, so that the comparison shows it.
        for buffer in self._inputs:
            if buffer is not None:
                buffer.fill_(math.nan)
        self._ends, self._deltas = [0], list[torch.Tensor]()
        """Operations before the first layer and up to the end of each; the output of each layer."""
        with operators.recording() as self._recording:
            decoder.run_layers(self._inputs, rows, adapters, self._end_layer)
        self._cached_at = self._recording.end_of_last("store")
        self._loaded: StepInFlight | None = None
        """The step in flight that the buffers belong to."""

    def forward(self, batch: StepBatch, *, needs_hidden: bool = True) -> torch.Tensor:
        """Compute what `Decoder.forward` does, for at most R rows; without `needs_hidden` only keys and values.

        Then it ends with those of the last layer that has its own, and returns no rows.
        """
        self._keep_loaded()
        self._fill(batch)
        num_rows, start, last = len(batch.token_ids), 0, self._end(needs_hidden)
        for number in range(min(num_deep(batch.vectors), len(self._deltas))):
            end = min(self._ends[number + 1], last)
            self._recording.run(num_rows, start, end)
            add_deep(self._deltas[number], batch.vectors, number)
            start = end
        self._recording.run(num_rows, start, last)
        return self._hidden(batch, needs_hidden)

    def begin(self, batch: StepBatch, *, needs_hidden: bool) -> StepInFlight:
        """Begin a step, as of `forward`. Nothing may change `batch` until it ends."""
        num_layers = next(number for number, end in enumerate(self._ends) if end >= self._end(needs_hidden))
        return StepInFlight(self, batch, needs_hidden, num_layers)

    def advance(self, step: StepInFlight) -> torch.Tensor | None:
        """Compute the next layer of a step; return the hidden rows, as of `forward`, after the last, else None."""
        num_rows = len(step.batch.token_ids)
        if self._loaded is not step:
            self._keep_loaded()
            self._fill(step.batch)
            for buffer, kept in zip(self._alive(step), step.kept, strict=False):
                buffer[:num_rows].copy_(kept)
            self._loaded, step.kept = step, []
        start, end = self._ends[step.num_done], min(self._ends[step.num_done + 1], self._end(step.needs_hidden))
        self._recording.run(num_rows, start, end)
        add_deep(self._deltas[step.num_done], step.batch.vectors, step.num_done)
        step.num_done += 1
        if step.num_done < step.num_layers:
            return None
        self._loaded = None
        return self._hidden(step.batch, step.needs_hidden)

    def _end_layer(self, delta: torch.Tensor) -> None:
        self._ends.append(len(self._recording))
        self._deltas.append(delta)

    def _end(self, needs_hidden: bool) -> int:
        return self._ends[-1] if needs_hidden else self._cached_at

    def _fill(self, batch: StepBatch) -> None:
        """Store the inputs of a step."""
        num_rows = len(batch.token_ids)
        hidden, rotations, own = self._decoder.begin(batch.token_ids, batch.positions, batch.vectors)
        self._inputs.hidden[:num_rows].copy_(hidden)
        self._inputs.rotations[:, :num_rows].copy_(rotations)
        if own is not None and self._inputs.own is not None:
            self._inputs.own[:num_rows].copy_(own)
        self._rows.fill(batch.layout)
        if self._adapters is not None:
            self._adapters.fill(batch.adapters)

    def _hidden(self, batch: StepBatch, needs_hidden: bool) -> torch.Tensor:
        num_rows = len(batch.token_ids) if needs_hidden else 0
        return self._decoder.end(self._inputs.hidden[:num_rows], self._deltas[-1][:num_rows])

    def _alive(self, step: StepInFlight) -> list[torch.Tensor]:
        """Return the buffers that the next layer of a step reads: the residual stream, and what is to be added."""
        return [self._inputs.hidden, *self._deltas[step.num_done - 1 : step.num_done]]

    def _keep_loaded(self) -> None:
        """Copy what the step in flight needs of the buffers, which are then free for another one."""
        step, self._loaded = self._loaded, None
        if step is not None:
            step.kept = [buffer[: len(step.batch.token_ids)].clone() for buffer in self._alive(step)]


class StepInFlight:
    """A step of a program of which the first `num_done` of `num_layers` have been computed."""

    def __init__(self, program: StepProgram, batch: StepBatch, needs_hidden: bool, num_layers: int) -> None:
        self.batch = batch
        self.needs_hidden = needs_hidden
        self.num_layers = num_layers
        self.num_done = 0
        self.kept: list[torch.Tensor] = []
        """What the next layer reads, while another step uses the program."""
        self._program = program

    @torch.inference_mode()
    def advance(self) -> torch.Tensor | None:
        """Compute the next layer; return the hidden rows (R, E) after the last, else None."""
        return self._program.advance(self)


class StepPrograms:
    """The programs of a model. `max_tokens`: the longest context that the cache and the model's positions allow.

    `adapters`: for the steps in which rows have some. They have programs of their own, so that no other step is slower.
    """

    def __init__(
        self, decoder: Decoder, attention: TorchCpuAttention, max_tokens: int, adapters: CpuAdapters | None = None
    ) -> None:
        self._decoder = decoder
        self._attention = attention
        self._max_tokens = max_tokens
        self._adapters = adapters
        self._table_width = -(-max_tokens // attention.block_size)
        self._programs: dict[int, StepProgram | None] = {}
        self._many: StepProgram | None = None
        self._many_from = FEW_ROWS + 1
        """The fewest rows that the program of many rows computes."""
        self._num_timed = 0

    def with_adapters(self, adapters: CpuAdapters) -> StepPrograms:
        """Return the programs of steps with adapters, whose operations are those of these programs and further ones.

        That of many rows is recorded at once and needs no proof of its own, as the further operations are kernels of
        ours. The others are recorded, and proven, when they first occur.
        """
        programs = StepPrograms(self._decoder, self._attention, self._max_tokens, adapters)
        if self._many is not None:
            programs._many = programs._recorded(self._many.num_rows)
            programs._many_from = self._many_from
        return programs

    @property
    def most_cut_rows(self) -> int:
        """The rows of the largest step that can be computed layer by layer; 0: none can."""
        return 0 if self._many is None else self._many.num_rows

    def summary(self) -> str:
        """Say which steps run as programs."""
        if self._many is None and not any(self._programs.values()):
            return "layer by layer"
        most = FEW_ROWS if self._many is None else self._many.num_rows
        dropped = ", ".join(str(num_rows) for num_rows, program in sorted(self._programs.items()) if program is None)
        return f"recorded up to {most} tokens" + (f", but not of {dropped}" if dropped else "")

    @torch.inference_mode()
    def prepare_few(self, most: int) -> None:
        """Make programs of 1, 2, … rows, up to `most`, until LOADING_S have passed or one fails."""
        started = perf_counter()
        for num_rows in range(1, min(most, self._max_tokens - 1, FEW_ROWS) + 1):
            if not self.prepare(num_rows) or perf_counter() - started >= LOADING_S:
                break

    @torch.inference_mode()
    def prepare_many(self, most: int) -> None:
        """Make and verify the program of steps of more than FEW_ROWS, up to `most`."""
        most = min(most, self._max_tokens - 1, MANY_ROWS)
        if most <= FEW_ROWS or not self._attention.takes_rows or not self._decoder.is_recordable:
            return
        program = self._recorded(most)
        if self._is_right(program, self._dummy_batch(0, FEW_ROWS + 1))[0]:
            self._many = program
            started = perf_counter()
            is_right, _ = self._is_right(program, self._dummy_batch(0, LEAST_SHARED_ROWS))
            if is_right and perf_counter() - started >= 2 * LONG_STEP_S:
                self._many_from = LEAST_SHARED_ROWS

    def prepare(self, num_rows: int) -> bool:
        """Make and verify the program of a row count by a dummy step, unless that is done; False if it fails."""
        if num_rows not in self._programs and num_rows <= FEW_ROWS and self._decoder.is_recordable:
            self._make(self._dummy_batch(0, num_rows))
        return self._programs.get(num_rows) is not None

    @torch.inference_mode()
    def time_step(self, num_rows: int) -> float:
        """Return the seconds of a step of one sequence that computes so many tokens and the logits after each.

        Only ratios of such times matter, so one thread computes and its processor time counts, which other load on the
        machine does not affect. Programs depend on the number of threads, so those that serve cannot be timed. Long
        steps are timed without one, which would take longer to make than it saves.
        """
        with KERNEL_THREADS.single_threaded():
            seconds = self._timed(num_rows, self._without_program)
            if seconds < LONG_STEP_S and self.prepare(num_rows) and (program := self._programs[num_rows]) is not None:
                seconds = self._timed(num_rows, program.forward)
            return seconds

    def _make(self, batch: StepBatch) -> torch.Tensor:
        """Make and verify the program of a step's row count; return the hidden rows (R, E)."""
        num_rows = len(batch.token_ids)
        program = self._recorded(num_rows)
        is_right, hidden = self._is_right(program, batch)
        self._programs[num_rows] = program if is_right else None
        return hidden

    def _timed(self, num_rows: int, compute: Callable[[StepBatch], torch.Tensor]) -> float:
        self._num_timed += 1
        start = thread_time()
        self._decoder.logits(compute(self._dummy_batch(self._num_timed, num_rows)))
        return thread_time() - start

    def forward(self, batch: StepBatch, *, needs_hidden: bool = True) -> torch.Tensor | None:
        """Return the hidden rows (R, E) of a step; None if it must be computed without a program.

        `needs_hidden`: False if nobody reads them; there may then be none.
        """
        num_rows = len(batch.token_ids)
        if not self._decoder.is_recordable:
            return None
        if num_rows in self._programs:
            found = self._programs[num_rows]
        elif self._many_from <= num_rows <= self.most_cut_rows:
            found = self._many
        elif num_rows <= FEW_ROWS:
            return self._make(batch)
        else:
            found = None
        return None if found is None else found.forward(batch, needs_hidden=needs_hidden)

    def can_cut(self, num_rows: int) -> bool:
        """Return True for a step that `begin` can compute layer by layer."""
        return FEW_ROWS < num_rows <= self.most_cut_rows

    def begin(self, batch: StepBatch, *, needs_hidden: bool) -> StepInFlight:
        """Begin such a step. Nothing may change `batch` until it ends."""
        assert self._many is not None
        return self._many.begin(batch, needs_hidden=needs_hidden)

    def _dummy_batch(self, number: int, num_rows: int) -> StepBatch:
        return dummy_batch(number, num_rows, self._max_tokens, self._attention.groups)

    def _without_program(self, batch: StepBatch) -> torch.Tensor:
        attention, num_rows = self._attention.begin_step(batch.layout), len(batch.token_ids)
        adapters = self._adapters and self._adapters.begin_step(batch.adapters, num_rows)
        return self._decoder.forward(batch.token_ids, batch.positions, attention, adapters, batch.vectors)

    @torch.inference_mode()
    def _recorded(self, num_rows: int) -> StepProgram:
        rows = self._attention.fixed_rows(num_rows, self._table_width)
        return StepProgram(self._decoder, rows, num_rows, self._adapters and self._adapters.fixed_rows(num_rows))

    def _is_right(self, program: StepProgram, batch: StepBatch) -> tuple[bool, torch.Tensor]:
        """Compute a step by a program and without; return whether the results are equal, and the latter.

        NOTE: the program runs first, so that the keys and values in the cache are those of the ordinary computation.
        """
        found = program.forward(batch)
        expected = self._without_program(batch)
        is_right = torch.allclose(found, expected, rtol=0, atol=0, equal_nan=True)
        if not is_right:
            logger.info("steps of %d rows are not all kernels of ours and stay as they are", program.num_rows)
        return is_right, expected
