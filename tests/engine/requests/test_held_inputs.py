"""The bytes of encoders' inputs that unfinished requests hold: bounded, shared out, and counted until they are gone."""

from __future__ import annotations

import gc

import pytest

from engine.api.errors import EngineUnavailable, ErrorCode
from engine.inputs.images import PromptMedia
from engine.messages import DefineMedia, MediaTensor
from engine.requests.held_inputs import HeldInputs


def media(*sizes):
    tensors = [MediaTensor("pixels", "uint8", [size], bytes(size)) for size in sizes]
    return PromptMedia(tuple(DefineMedia(str(number), 1, [tensor]) for number, tensor in enumerate(tensors)))


def test_a_project_may_hold_as_much_as_it_leaves_free():
    held = HeldInputs(100)
    first, second = media(20, 10), media(20)
    held.hold(first, "one")
    held.hold(second, "one")
    with pytest.raises(EngineUnavailable, match="LIGHTCONE_MAX_ENCODER_INPUT_BYTES") as refused:
        held.hold(media(1), "one")
    assert refused.value.code is ErrorCode.OVERLOADED
    other = media(25)
    held.hold(other, "two")
    with pytest.raises(EngineUnavailable):
        held.hold(media(1), "two")
    assert held.num_bytes == 75


def test_what_nobody_has_any_more_makes_room():
    held = HeldInputs(100)
    first = media(50)
    held.hold(first, "one")
    del first
    assert held.num_bytes == 0
    second = media(50)
    held.hold(second, "one")


def test_a_request_that_is_alone_is_taken_however_large():
    held = HeldInputs(10)
    large = media(500)
    held.hold(large, "one")
    with pytest.raises(EngineUnavailable):
        held.hold(media(1), "two")


def test_text_holds_nothing():
    held = HeldInputs(1)
    for _ in range(3):
        held.hold(PromptMedia(), "one")
    assert held.num_bytes == 0


def test_garbage_that_is_collected_while_others_come_is_released():
    held = HeldInputs(1000)

    def in_a_circle():
        owner = [media(10)]
        owner.append(owner)
        held.hold(owner[0], "one")

    for _ in range(5):
        in_a_circle()
    gc.collect()
    assert held.num_bytes == 0


def test_what_is_released_while_a_request_is_counted_stays_released():
    first = media(30)

    class Bound(int):
        """A bound that has the first request end at the time of the comparison, as collecting garbage may."""

        def __sub__(self, other):
            nonlocal first
            first = None
            return int(self) - other

    held = HeldInputs(Bound(100))
    held.hold(first, "one")
    second = media(20)
    held.hold(second, "two")
    assert held.num_bytes == 20
