"""The gate between steps and a thread that encodes: who computes when. The thread counts its parts."""

from __future__ import annotations

import threading

import pytest

from engine.execution.encoder_gate import LEAST_S, MOST_S, SHARE, EncoderGate

DEADLINE_S = 60.0


class CountedParts:
    """A thread that passes through a gate before each of endless parts, until it is over."""

    def __init__(self, gate: EncoderGate) -> None:
        self.num_parts = 0
        self._gate = gate
        self.is_over = threading.Event()
        self.is_held = threading.Event()
        """Parts wait while it is set."""
        self._has_begun, self._may_end = threading.Event(), threading.Event()
        gate.begin()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_over.is_set():
            self._gate.pass_through()
            self.num_parts += 1
            if self.is_held.is_set():
                self._has_begun.set()
                self._may_end.wait(DEADLINE_S)
        self._gate.end()

    @property
    def is_in_a_part(self) -> bool:
        """A part has begun that lasts until the end."""
        return self._has_begun.is_set()

    def end(self) -> None:
        self.is_over.set()
        self._may_end.set()
        self._gate.open()
        self.thread.join(DEADLINE_S)


@pytest.fixture
def gate() -> EncoderGate:
    return EncoderGate(patience_s=DEADLINE_S)


@pytest.fixture
def parts(gate: EncoderGate):
    made = CountedParts(gate)
    yield made
    made.end()


def until_some(gate: EncoderGate, parts: CountedParts) -> int:
    """Let the thread reach the gate, and through it for the first time."""
    while not parts.num_parts:
        gate.wait(LEAST_S)
    return parts.num_parts


def test_the_thread_computes_only_while_the_loop_lets_it(gate: EncoderGate, parts: CountedParts) -> None:
    before = until_some(gate, parts)
    gate.wait(LEAST_S)
    now = parts.num_parts
    assert now > before
    gate.compute_beside(0.0)
    assert parts.num_parts == now, "it waits at the gate"


def test_beside_steps_the_thread_has_its_share_of_the_time(gate: EncoderGate, parts: CountedParts) -> None:
    before = until_some(gate, parts)
    step_s = LEAST_S * (1 - SHARE) / SHARE
    gate.compute_beside(0.9 * step_s)
    assert parts.num_parts == before, "its share is not worth a change yet"
    gate.compute_beside(0.2 * step_s)
    assert parts.num_parts > before
    spent = parts.num_parts
    gate.compute_beside(0.1 * step_s)
    assert parts.num_parts == spent


def test_a_long_step_earns_no_more_than_the_longest_time(gate: EncoderGate, parts: CountedParts) -> None:
    until_some(gate, parts)
    gate.compute_beside(1000.0)
    now = parts.num_parts
    gate.compute_beside((LEAST_S / 2) * (1 - SHARE) / SHARE)
    assert parts.num_parts == now, f"{MOST_S} s are spent"


def test_a_part_that_takes_long_holds_up_no_step() -> None:
    gate = EncoderGate()
    parts = CountedParts(gate)
    until_some(gate, parts)
    parts.is_held.set()
    while not parts.is_in_a_part:
        gate.wait(LEAST_S)
    gate.compute_beside(1000.0)  # returns, though the part goes on
    assert not gate.is_over
    parts.end()


def test_the_end_of_the_thread_ends_the_wait_for_it(gate: EncoderGate, parts: CountedParts) -> None:
    until_some(gate, parts)
    parts.is_over.set()
    while not gate.is_over:
        gate.wait(DEADLINE_S)
    gate.begin()
    assert not gate.is_over


def test_an_open_gate_holds_nobody_up(gate: EncoderGate, parts: CountedParts) -> None:
    before = until_some(gate, parts)
    gate.open()
    while parts.num_parts == before:
        parts.thread.join(0.001)
