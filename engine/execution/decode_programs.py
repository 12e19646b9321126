"""Steps of few rows as recorded programs: the kernels of all layers in one call, for row counts whose every operator is ours.

A row is a token, whichever sequence it belongs to: decodes, drafts behind them and the ends of prompts share the record of their number.

What runs in Python between two kernels costs a lone step on a CPU a fifth of its time. So the first step of a row count is recorded
while it computes, the next one of other tokens at other places computes both ways and is compared, and from then on the record alone is
run, with the step's inputs in the buffers that it reads. A record that left something out (a product or a bias that torch computes) gives
other results, and is dropped. The fewest rows have both steps while the model loads, others when they first come.
"""

from __future__ import annotations

import logging
from time import perf_counter

import torch

from engine.attention.torch_cpu import FixedRows, TorchCpuAttention
from engine.execution.batch import StepBatch
from engine.execution.trial_batch import trial_batch
from engine.kernels import operators
from engine.models.decoder import Decoder

logger = logging.getLogger(__name__)

MAX_ROWS = 32
"""More rows spend their time in the products."""
LOADING_S = 2.0
"""What making programs may add to the loading of a model: all 32 of one of 135 M parameters, some 12 of one of 1.5 B."""


class DecodeProgram:
    """One row count. Inputs lie in buffers of its own: hidden (R, E), rotations (R, 1, D/2), the rows of attention."""

    def __init__(self, decoder: Decoder, rows: FixedRows, batch: StepBatch) -> None:
        """Record the layers with a step's inputs; `result` is that of the step."""
        self._decoder = decoder
        self._rows = rows
        self._first = batch.token_ids.clone(), batch.positions.clone()
        self._hidden, self._rotations = decoder.begin(batch.token_ids, batch.positions)
        rows.fill(batch.layout)
        with operators.recording() as self._recording:
            self._delta = decoder.run_layers(self._hidden, self._rotations, rows)
        self.result = self._hidden + self._delta

    def can_be_proven(self, batch: StepBatch) -> bool:
        """Whether this step would show what the record left out; with the recorded step's own inputs what is left over is right."""
        token_ids, positions = self._first
        return not torch.equal(token_ids, batch.token_ids) and not torch.equal(positions, batch.positions)

    def forward(self, batch: StepBatch) -> torch.Tensor:
        """As `Decoder.forward`."""
        hidden, rotations = self._decoder.begin(batch.token_ids, batch.positions)
        self._hidden.copy_(hidden)
        self._rotations.copy_(rotations)
        self._rows.fill(batch.layout)
        self._recording.run()
        return self._hidden + self._delta


class DecodePrograms:
    """The programs of a model. `max_tokens`: the longest context, which the cache and the model's positions have room for."""

    def __init__(self, decoder: Decoder, attention: TorchCpuAttention, max_tokens: int) -> None:
        self._decoder = decoder
        self._attention = attention
        self._max_tokens = max_tokens
        self._table_width = -(-max_tokens // attention.block_size)
        self._programs: dict[int, DecodeProgram | None] = {}
        self._unproven: set[int] = set()

    @torch.inference_mode()
    def prepare_few(self, most: int) -> None:
        """Make programs of 1, 2, … rows, up to `most`, until LOADING_S have gone or one does not succeed."""
        started = perf_counter()
        for num_rows in range(1, min(most, self._max_tokens - 1, MAX_ROWS) + 1):
            if not self.prepare(num_rows) or perf_counter() - started >= LOADING_S:
                break

    def prepare(self, num_rows: int) -> bool:
        """Make and prove the program of a row count by steps of made-up tokens, unless that is done; False if it did not succeed."""
        if num_rows not in self._programs or num_rows in self._unproven:
            for number in range(2):
                self.forward(trial_batch(number, num_rows, self._max_tokens, self._attention.block_size))
        return self._programs.get(num_rows) is not None and num_rows not in self._unproven

    def forward(self, batch: StepBatch) -> torch.Tensor | None:
        """The hidden rows (R, E) of a step of few tokens, or None: the step must be computed in the ordinary way."""
        num_rows = len(batch.token_ids)
        if num_rows > MAX_ROWS:
            return None
        if num_rows not in self._programs:
            program = DecodeProgram(self._decoder, self._attention.fixed_rows(num_rows, self._table_width), batch)
            self._programs[num_rows] = program
            self._unproven.add(num_rows)
            return program.result
        found = self._programs[num_rows]
        if found is None:
            return None
        if num_rows not in self._unproven:
            return found.forward(batch)
        return self._prove(num_rows, found, batch) if found.can_be_proven(batch) else None

    def _prove(self, num_rows: int, program: DecodeProgram, batch: StepBatch) -> torch.Tensor:
        """Compute a step both ways: the same, or the program is given up.

        NOTE: the ordinary way comes second, so that it is what leaves keys and values in the cache.
        """
        self._unproven.discard(num_rows)
        found = program.forward(batch)
        expected = self._decoder.forward(batch.token_ids, batch.positions, self._attention.begin_step(batch.layout))
        if not torch.allclose(found, expected, rtol=0, atol=0, equal_nan=True):
            logger.info("steps of %d rows are not all kernels of ours and stay as they are", num_rows)
            self._programs[num_rows] = None
        return expected
