"""Sequences and a fake step loop for the tests of scheduling: the "model" is a function of the known tokens."""

from __future__ import annotations

from collections.abc import Callable

from engine.api.request import EmbedOptions, LogprobOptions, SamplingParams, StopRules
from engine.messages import AddSequence, MediaSpan
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.spilled_blocks import RESTORED_BYTES
from engine.scheduling.step_budget import Drafter
from engine.sequence import Chunk, Finished, Sequence, StepPlan

STOP_ID = 7


def make_sequence(
    seq_id: int,
    prompt_ids: list[int],
    max_tokens: int = 4,
    *,
    priority: int = 0,
    min_tokens: int = 0,
    cache_root: bytes = b"tenant",
    output_ids: list[int] | None = None,
    group: str = "",
    tenant: str = "",
    embed: EmbedOptions | None = None,
    stop_ids: list[int] | None = None,
    bad_word_ids: list[list[int]] | None = None,
    draft_ids: list[int] | None = None,
    media: list[MediaSpan] | None = None,
) -> Sequence:
    request = AddSequence(
        seq_id=seq_id,
        prompt_ids=list(prompt_ids),
        output_ids=output_ids or [],
        sampling=SamplingParams(temperature=0.0, seed=seq_id),
        stop=StopRules(min_tokens=min_tokens),
        logprobs=LogprobOptions(),
        stop_ids=[STOP_ID] if stop_ids is None else stop_ids,
        max_tokens=max_tokens,
        cache_root=cache_root,
        priority=priority,
        bad_word_ids=bad_word_ids or [],
        draft_ids=draft_ids or [],
        group=group,
        tenant=tenant,
        embed=embed,
        media=media or [],
    )
    return Sequence(request)


def make_scheduler(
    num_blocks: int = 64,
    block_size: int = 4,
    max_num_batched_tokens: int = 16,
    max_num_seqs: int = 8,
    max_waiting: int = 100,
    prefix_caching: bool = True,
    drafter: Drafter | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Scheduler:
    return Scheduler(
        num_blocks,
        block_size,
        max_num_batched_tokens,
        max_num_seqs,
        max_waiting,
        prefix_caching,
        drafter=drafter,
        clock=clock,
    )


def next_token(sequence: Sequence) -> int:
    """A deterministic model: depends on every known token, and gives the stop id now and then."""
    return (sum(sequence.token_slice(0, sequence.num_tokens)) * 31 + sequence.num_tokens) % 50 + 1


def solo_output(sequence: Sequence) -> list[int]:
    """Return the output of the sequence alone, by the definition of its stop rules."""
    copy = make_sequence(0, sequence.prompt_ids, output_ids=sequence.output_ids)
    while True:
        copy.output_ids.append(next_token(copy))
        if copy.output_ids[-1] == STOP_ID and len(copy.output_ids) > sequence.request.stop.min_tokens:
            return copy.output_ids
        if len(copy.output_ids) >= sequence.max_tokens:
            return copy.output_ids


def draw(chunk: Chunk) -> list[int]:
    """Return the tokens drawn for a chunk: the next token, and one more while drafts match and the sequence has not
    ended.
    """
    copy = chunk.sequence.with_output(list(chunk.sequence.output_ids))
    num_before = len(copy.output_ids)
    for draft_id in (*chunk.draft_ids, None):
        copy.output_ids.append(next_token(copy))
        if copy.output_ids[-1] != draft_id or copy.end_reason(1 << 30):
            break
    return copy.output_ids[num_before:]


def sample(plan: StepPlan) -> dict[int, list[int]]:
    return {chunk.sequence.seq_id: draw(chunk) for chunk in plan.chunks if chunk.samples}


class WrittenFile:
    """A spill file of what the slots of a cache were last written for (`written`, by slot)."""

    def __init__(self, num_places: int, written: dict[int, object], block_size: int, most_restored: int = 1) -> None:
        """`most_restored`: blocks that may be copied back before a step."""
        self.num_places = num_places
        self.block_bytes = RESTORED_BYTES // most_restored
        self.num_read = 0
        self._written = written
        self._block_size = block_size
        self._stored: dict[int, list[object]] = {}

    def write(self, place: int, block_id: int) -> None:
        self._stored[place] = [self._written[slot] for slot in self._slots(block_id)]

    def read(self, place: int, block_id: int) -> None:
        self.num_read += 1
        self._written.update(zip(self._slots(block_id), self._stored[place], strict=True))

    def _slots(self, block_id: int) -> range:
        return range(block_id * self._block_size, (block_id + 1) * self._block_size)


class OracleDrafter:
    """A drafter that knows the output of each sequence and errs at the positions (from 0) for which `errs` is true."""

    def __init__(self, length: int = 3, errs: Callable[[int], bool] = lambda place: False) -> None:
        self.length = length
        self.errs = errs

    def propose(self, sequence: Sequence, num_rows: int, limit: int) -> tuple[int, ...]:
        copy = sequence.with_output(list(sequence.output_ids))
        for _ in range(min(limit, self.length)):
            wrong = self.errs(len(copy.output_ids))
            copy.output_ids.append(99 if wrong else next_token(copy))
        return tuple(copy.output_ids[len(sequence.output_ids) :])


def step(scheduler: Scheduler) -> tuple[StepPlan | None, list[Finished]]:
    """Plan and advance once; check every count in between."""
    plan = scheduler.plan()
    assert scheduler.check_integrity() == ""
    finished = scheduler.advance(plan, sample(plan)) if plan else []
    assert scheduler.check_integrity() == ""
    return plan, finished


def run(scheduler: Scheduler, limit: int = 10_000) -> list[Finished]:
    """Step until nothing is left."""
    finished = []
    for _ in range(limit):
        plan, updates = step(scheduler)
        finished += updates
        if plan is None:
            return finished
    raise AssertionError("the scheduler does not come to an end")
