"""Chooses the next token of every sequence of a step, in the order that docs/api/lightcone.md promises:

 1. grammar mask; then the snapshot of raw log-probabilities
 2. allowed_token_ids
 3. bad_words
 4. min_tokens
 5. logit_bias
 6. repetition, frequency and presence penalties
 7. logits processors; tokens that are forbidden by now stay forbidden
 8. the end marker of reasoning, forced when the budget is spent; then the snapshot of processed log-probabilities
 9. greedy choice, ties to the lowest id
10. temperature, min_p, top_k, top_p, draw

Each stage reads only the rows that use it, and the result of a row is a function of that row alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.kernels.cpu.transfer import upload
from engine.messages import ProcessorSpec, SampledLogprobs
from engine.sampling.batch import DrawRows, SamplingBatch, StepRows
from engine.sampling.draw import draw_filtered, draw_filtered_without_sync, draw_from_all, uniform
from engine.sampling.logprobs import LogprobSnapshot
from engine.sampling.masks import (
    GrammarBitmask,
    add_bias,
    force,
    mask_all_but,
    mask_bad_words,
    mask_grammar,
    mask_stop_ids,
)
from engine.sampling.penalties import apply_penalties
from engine.sampling.processors.registry import ProcessorRegistry
from engine.sampling.ranking import block_maxima, first_largest, pad_to_blocks
from engine.sequence import Sequence

FAILED_TOKEN = -1


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The token of one row. A row with NaN or +inf, or with all tokens forbidden, has failed and has no token."""

    token_id: int
    logprobs: SampledLogprobs | None = None
    failed_param: str = ""
    """The request field that forbade every token, "" if none did."""

    @property
    def is_failed(self) -> bool:
        return self.token_id == FAILED_TOKEN


class HostCopy:
    """One asynchronous copy of a step's tokens, of which rows are sound, and of whether some must be drawn again."""

    def __init__(self, token_ids: torch.Tensor, best: torch.Tensor, is_unfinished: torch.Tensor | None) -> None:
        """token_ids: (R,)   best: (R,), each row's largest logit, finite in sound rows   is_unfinished: of any rows."""
        self._event: torch.cuda.Event | None = None
        if token_ids.device.type != "cuda":
            self._token_ids, self._best, self._is_unfinished = token_ids, best, is_unfinished
            return
        again = torch.zeros_like(token_ids[:1]) if is_unfinished is None else is_unfinished.any()[None].long()
        packed = torch.cat((token_ids, best.isfinite().long(), again))
        self._packed = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True).copy_(packed, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def wait(self) -> tuple[list[int], list[bool]]:
        """Wait for the copy; return the tokens, and which rows are sound."""
        if self._event is None:
            return self._token_ids.tolist(), self._best.isfinite().tolist()
        self._event.synchronize()
        numbers = self._packed.tolist()
        half = len(numbers) // 2
        return numbers[:half], [bool(number) for number in numbers[half:-1]]

    def is_final(self) -> bool:
        """Return True if no row must be drawn again. Waits for the copy."""
        if self._event is None:
            return self._is_unfinished is None or not bool(self._is_unfinished.any())
        self._event.synchronize()
        return not self._packed[-1].item()


@dataclass(frozen=True, slots=True)
class PendingTokens:
    """The state of a sampling step between `Sampler.start` and `Sampler.finish`."""

    sequences: list[Sequence]
    bitmask: GrammarBitmask | None
    snapshots: list[LogprobSnapshot]
    token_ids: torch.Tensor
    """(R,) on the device, where they may already feed the next step."""
    best: torch.Tensor
    host: HostCopy
    redraw: tuple[torch.Tensor | None, tuple] | None
    """Rows (None: all) and arguments of a draw that may have ranked too few tokens."""


class Sampler:
    """The sampler of one core. It keeps the sampling state of each sequence between `add` and `remove`."""

    def __init__(
        self,
        vocab_size: int,
        device: torch.device | str,
        processors: ProcessorRegistry | None = None,
        syncs: bool | None = None,
    ) -> None:
        """`vocab_size`: the width of the logits. `syncs`: the draw may read results on the host (None: on a CPU)."""
        self._processors = processors or ProcessorRegistry()
        self._batch = SamplingBatch(vocab_size, torch.device(device), self._processors)
        self._syncs = torch.device(device).type == "cpu" if syncs is None else syncs

    @property
    def processor_specs(self) -> list[ProcessorSpec]:
        """The logits processors that sequences may name."""
        return self._processors.specs

    def add(self, sequence: Sequence) -> None:
        """Add a sequence, new or resumed with output. Raises ValueError, RequestError or what a processor raises."""
        self._batch.add(sequence)

    def remove(self, seq_id: int) -> None:
        """Remove a sequence that has ended. Unknown ids are ignored."""
        self._batch.remove(seq_id)

    @torch.inference_mode()
    def sample(
        self, logits: torch.Tensor, sequences: list[Sequence], bitmask: GrammarBitmask | None = None
    ) -> list[SampledToken]:
        """Choose a token per row of logits (R, V) float32, row i for `sequences[i]`. Overwrites logits.

        A sequence occurs at most once, unless none of its features reads its output.
        """
        return self.finish(self.start(logits, sequences, bitmask)) if sequences else []

    @torch.inference_mode()
    def start(
        self, logits: torch.Tensor, sequences: list[Sequence], bitmask: GrammarBitmask | None = None, num_ahead: int = 0
    ) -> PendingTokens:
        """Start sampling, on CUDA without waiting for the device. Overwrites logits.

        `num_ahead`: tokens before this one that the host does not know yet; not 0 only if `can_run_ahead`.
        """
        rows = self._batch.rows(sequences)
        snapshots = _constrain(logits, rows, sequences, bitmask)
        logits = pad_to_blocks(logits)
        maxima = block_maxima(logits)
        token_ids, best = first_largest(logits, maxima)
        is_unfinished = redraw = None
        if (draws := rows.filtered) is not None:
            selected = (
                *_select(draws.index, logits, maxima, best),
                draws.filters,
                _uniforms(draws, sequences, logits.device, num_ahead),
            )
            if self._syncs:
                drawn = draw_filtered(*selected)
            else:
                drawn, is_unfinished = draw_filtered_without_sync(*selected)
                redraw = draws.index, selected
            token_ids = _place(token_ids, draws.index, drawn)
        if (draws := rows.unfiltered) is not None:
            uniforms = _uniforms(draws, sequences, logits.device, num_ahead)
            drawn = draw_from_all(*_select(draws.index, logits, best), draws.filters.temperature, uniforms)
            token_ids = _place(token_ids, draws.index, drawn)
        return PendingTokens(
            sequences, bitmask, snapshots, token_ids, best, HostCopy(token_ids, best, is_unfinished), redraw
        )

    @torch.inference_mode()
    def finish(self, pending: PendingTokens) -> list[SampledToken]:
        """Wait for the tokens and return them.

        Rows for which too few tokens were ranked are drawn again, with other tokens than `pending.token_ids`.
        """
        token_ids = pending.token_ids
        chosen, is_sound = pending.host.wait()
        if pending.redraw is not None and not pending.host.is_final():
            index, selected = pending.redraw
            token_ids = _place(token_ids, index, draw_filtered(*selected))
            chosen = token_ids.tolist()
        reported = {
            row: logprobs for snapshot in pending.snapshots for row, logprobs in snapshot.report(token_ids).items()
        }
        sequences, best, bitmask = pending.sequences, pending.best, pending.bitmask
        return [
            SampledToken(token_id, reported.get(row))
            if is_sound[row]
            else self._failure(row, sequences[row], best[row], bitmask)
            for row, token_id in enumerate(chosen)
        ]

    def can_run_ahead(self, sequences: list[Sequence]) -> bool:
        """Return True if each of these can be sampled before the tokens that precede it are known."""
        return all(self._batch.record(sequence).ignores_output for sequence in sequences)

    def _failure(
        self, row: int, sequence: Sequence, best: torch.Tensor, bitmask: GrammarBitmask | None
    ) -> SampledToken:
        """Return a failed token, with the request field to blame if every token was forbidden."""
        if not best.isneginf() or sequence not in self._batch:
            return SampledToken(FAILED_TOKEN)
        record = self._batch.record(sequence)
        blame = {
            "structured_outputs": bitmask is not None and row in bitmask.rows,
            "allowed_token_ids": record.allowed_ids is not None,
            "logits_processors": record.processors is not None,
            "bad_words": record.bad_words is not None,
            "min_tokens": bool(record.stop_ids),
        }
        return SampledToken(FAILED_TOKEN, None, next((param for param, is_used in blame.items() if is_used), ""))


def _constrain(
    logits: torch.Tensor, rows: StepRows, sequences: list[Sequence], bitmask: GrammarBitmask | None
) -> list[LogprobSnapshot]:
    """Apply steps 1 to 8 to logits (R, V) in place; return the snapshots of log-probabilities."""
    snapshots: list[LogprobSnapshot] = []
    if bitmask is not None:
        mask_grammar(logits, bitmask)
    if rows.raw_logprobs:
        snapshots.append(LogprobSnapshot(logits, rows.raw_logprobs))
    if rows.allowed is not None:
        mask_all_but(logits, rows.allowed)
    if rows.bad_words:
        mask_bad_words(logits, rows.bad_words, sequences)
    if rows.min_tokens:
        mask_stop_ids(logits, rows.min_tokens, sequences)
    if rows.bias is not None:
        add_bias(logits, rows.bias)
    if rows.penalties:
        apply_penalties(logits, rows.penalties, sequences)
    for row, processors in rows.processors:
        processors.apply(sequences[row].output_ids, logits[row])
    if rows.thinking:
        _force_thinking(logits, rows, sequences)
    if rows.processed_logprobs:
        snapshots.append(LogprobSnapshot(logits, rows.processed_logprobs))
    return snapshots


def _force_thinking(logits: torch.Tensor, rows: StepRows, sequences: list[Sequence]) -> None:
    """Force the end marker of reasoning in rows whose budget is spent."""
    forced = []
    for row, track in rows.thinking:
        track.update(sequences[row].output_ids)
        if track.forced_id is not None:
            forced.append((row, track.forced_id))
    if forced:
        force(logits, forced)


def _select(index: torch.Tensor | None, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Take the rows at `index` of each tensor; index None takes all without copying."""
    return tensors if index is None else tuple(tensor[index] for tensor in tensors)


def _place(token_ids: torch.Tensor, index: torch.Tensor | None, drawn: torch.Tensor) -> torch.Tensor:
    """Put drawn tokens into their rows."""
    return drawn if index is None else token_ids.index_copy(0, index, drawn)


def _uniforms(draws: DrawRows, sequences: list[Sequence], device: torch.device, num_ahead: int) -> torch.Tensor:
    """Return the random numbers (R,) of these rows at their positions."""
    numbers = [
        uniform(seed, len(sequences[row].output_ids) + num_ahead)
        for seed, row in zip(draws.seeds, draws.rows, strict=True)
    ]
    return upload(numbers, torch.float64, device)
