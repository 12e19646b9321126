"""The media of a core: what is encoded when, kept for whom, and forgotten; with an encoder that counts."""

from __future__ import annotations

import threading
import weakref

import pytest
import torch

from engine.api import LogprobOptions, SamplingParams, StopRules
from engine.api.errors import EngineFailure
from engine.execution.media import CoreMedia
from engine.layers.embedding import EncodedMedia
from engine.messages import GIVEN, AddSequence, DefineMedia, MediaSpan, MediaTensor
from engine.models.transformers_backend.media_encoder import split
from engine.scheduling.prefix_cache import extend_digests
from engine.sequence import Sequence

WIDTH = 4
VECTOR_BYTES = 4 * WIDTH


class CountingEncoder:
    """Makes as many vectors as the item's one tensor has numbers, of that number; fails for a negative one."""

    def __init__(self):
        self.calls = 0

    def encode(self, tensors):
        self.calls += 1
        (numbers,) = tensors.values()
        if numbers.min() < 0:
            raise ValueError("a broken item")
        return EncodedMedia(numbers[:, None].expand(-1, WIDTH).contiguous())


class BatchingEncoder(CountingEncoder):
    """Encodes items of one length together. A negative number breaks a call; an infinite one is the item's own."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def form_of(self, tensors):
        return len(tensors[0].data)

    def cut(self, tensors, count, most):
        return [{"pixels": part} for part in tensors["pixels"].split(most)]

    def encode_together(self, items, counts):
        numbers = [tensors["pixels"] for tensors in items]
        self.batches.append([int(first[0]) if first[0].isfinite() else None for first in numbers])
        if any(one.min() < 0 for one in numbers):
            raise ValueError("a broken item")
        return split(EncodedMedia(torch.cat(numbers)[:, None].expand(-1, WIDTH).contiguous()), counts)


def item(key, *numbers, num_vectors=None):
    data = torch.tensor(numbers, dtype=torch.float32).numpy().tobytes()
    count = len(numbers) if num_vectors is None else num_vectors
    return DefineMedia(key, count, [MediaTensor("pixels", "float32", [len(numbers)], data)])


def sequence(seq_id, *spans, prompt=32, tenant=""):
    options = SamplingParams(seed=0), StopRules(), LogprobOptions()
    return AddSequence(seq_id, [7] * prompt, [], *options, [], 1, cache_root=b"", media=list(spans), tenant=tenant)


@pytest.fixture
def encoder():
    return CountingEncoder()


@pytest.fixture
def media(encoder):
    return CoreMedia(encoder, cache_bytes=3 * VECTOR_BYTES)


def test_a_sequence_gets_the_vectors_of_its_spans(media, encoder):
    media.define(item("a", 1, 2, 3))
    message = sequence(1, MediaSpan("a", 4, 2), MediaSpan("a", 9, 1, first=2))
    media.expect(message)
    assert not media.is_ready(message)
    assert media.next_seq_ids == [1]
    assert media.encode_next()
    assert media.is_ready(message)
    assert not media.encode_next()
    found = Sequence(message)
    media.add(found)
    assert [(span.start, span.end, span.vectors[:, 0].tolist()) for span in found.inputs] == [
        (4, 6, [1, 2]),
        (9, 10, [3]),
    ]
    assert found.inputs_end == 10
    assert encoder.calls == 1


def test_items_are_encoded_once_in_the_order_of_arrival(media, encoder):
    for seq_id, key in enumerate("abab", 1):
        media.define(item(key, 1))
        media.expect(sequence(seq_id, MediaSpan(key, 0, 1)))
        media.forget([key])
    assert media.next_seq_ids == [1, 3]
    media.encode_next()
    assert media.next_seq_ids == [2, 4]
    media.encode_next()
    assert encoder.calls == 2
    media.define(item("a", 1))
    message = sequence(5, MediaSpan("a", 0, 1))
    media.expect(message)
    assert media.is_ready(message)


def test_what_nobody_needs_is_kept_as_far_as_there_is_room(media, encoder):
    for number, key in enumerate("abcd"):
        media.define(item(key, 1))
        media.expect(sequence(number, MediaSpan(key, 0, 1)))
        media.encode_next()
        media.forget([key])
    for number in range(4):
        media.remove(number)
    for key in "bcda":
        media.define(item(key, 1))
        media.expect(sequence(9, MediaSpan(key, 0, 1)))
        media.encode_next()
    assert encoder.calls == 5, "only the oldest was encoded anew"


def test_a_sequence_that_is_aborted_while_it_waits_is_not_encoded(media, encoder):
    media.define(item("a", 1))
    media.expect(sequence(1, MediaSpan("a", 0, 1)))
    media.forget(["a"])
    media.remove(1)
    assert not media.encode_next()
    assert encoder.calls == 0


@pytest.mark.parametrize("broken", [item("a", -1), item("a", 1, num_vectors=2), item("a", float("inf"))], ids=range(3))
def test_an_item_that_cannot_be_encoded_fails_its_sequences_alone(media, broken):
    media.define(broken)
    media.define(item("b", 1))
    messages = [sequence(1, MediaSpan("a", 0, 1)), sequence(2, MediaSpan("b", 0, 1))]
    for message in messages:
        media.expect(message)
    while media.encode_next():
        pass
    assert all(map(media.is_ready, messages))
    with pytest.raises(EngineFailure):
        media.add(Sequence(messages[0]))
    media.add(Sequence(messages[1]))
    media.remove(1)
    media.define(item("a", 1))
    media.expect(sequence(3, MediaSpan("a", 0, 1)))
    assert media.encode_next(), "it is tried again for who sends it anew"


def test_an_item_that_was_never_defined_fails_its_sequence(media):
    message = sequence(1, MediaSpan("x", 0, 1))
    media.expect(message)
    assert media.is_ready(message)
    with pytest.raises(EngineFailure):
        media.add(Sequence(message))


def test_prefixes_differ_by_the_content_and_the_place_of_media():
    def digests(*spans):
        found = []
        extend_digests(found, Sequence(sequence(1, *spans)), 2, 16)
        return found

    plain, first, other = digests(), digests(MediaSpan("a", 4, 8)), digests(MediaSpan("b", 4, 8))
    moved, later = digests(MediaSpan("a", 5, 8)), digests(MediaSpan("a", 4, 8, first=1))
    assert len({tuple(found) for found in (plain, first, other, moved, later)}) == 5
    assert digests(MediaSpan("a", 20, 8))[0] == plain[0], "what comes behind changes nothing before"
    assert digests(MediaSpan("a", 4, 8)) == first


class GridEncoder:
    """Makes a vector for each cell of a grid of the item's one tensor: rows and columns."""

    def encode(self, tensors):
        rows, columns = next(iter(tensors.values())).int().tolist()
        places = torch.cartesian_prod(torch.zeros(1, dtype=torch.int64), torch.arange(rows), torch.arange(columns)).t()
        return EncodedMedia(torch.ones(rows * columns, WIDTH), places)


def test_tokens_behind_an_image_count_from_its_longer_side():
    media = CoreMedia(GridEncoder())
    media.define(item("a", 2, 3, num_vectors=6))
    message = sequence(1, MediaSpan("a", 4, 6), MediaSpan("a", 12, 6))
    media.expect(message)
    media.encode_next()
    found = Sequence(message)
    media.add(found)
    first, second = found.inputs
    assert first.places.tolist() == [[4] * 6, [4, 4, 4, 5, 5, 5], [4, 5, 6] * 2]
    assert first.shift == -3
    assert second.places[2].tolist() == [9, 10, 11] * 2
    assert found.shift == second.shift == -6


def test_tokens_behind_a_long_video_come_after_its_last_time():
    class Watching:
        def encode(self, tensors):
            return EncodedMedia(torch.ones(4, WIDTH), torch.tensor([[0, 2, 0, 2], [0] * 4, [0] * 4]))

    media = CoreMedia(Watching())
    media.define(item("a", 1, num_vectors=4))
    message = sequence(1, MediaSpan("a", 3, 2), MediaSpan("a", 9, 2, first=2))
    media.expect(message)
    media.encode_next()
    found = Sequence(message)
    media.add(found)
    assert [span.places[0].tolist() for span in found.inputs] == [[3, 5], [10, 12]]
    assert [span.shift for span in found.inputs] == [1, 2]


class HeldEncoder(CountingEncoder):
    """Encodes once it is let."""

    def __init__(self):
        super().__init__()
        self.may_go, self.has_begun = threading.Event(), threading.Event()

    def encode(self, tensors):
        self.has_begun.set()
        assert self.may_go.wait(60)
        return super().encode(tensors)


@pytest.fixture
def held():
    encoder = HeldEncoder()
    yield encoder
    encoder.may_go.set()


def until_encoded(media):
    while not media.encode_next():
        media.wait()


def test_a_thread_encodes_while_the_loop_goes_on(held):
    media = CoreMedia(held, in_thread=True)
    for seq_id, key in enumerate("ab", 1):
        media.define(item(key, seq_id))
        media.expect(sequence(seq_id, MediaSpan(key, 0, 1)))
    assert not media.encode_next()
    assert held.has_begun.wait(60)
    assert media.is_encoding
    assert media.next_seq_ids == [1]
    assert not media.encode_next(), "the loop does not wait"
    held.may_go.set()
    until_encoded(media)
    assert media.is_ready(sequence(1, MediaSpan("a", 0, 1)))
    until_encoded(media)
    assert held.calls == 2
    assert not media.is_encoding


def test_what_is_aborted_while_a_thread_encodes_it_is_forgotten(held):
    media = CoreMedia(held, in_thread=True)
    message = sequence(1, MediaSpan("a", 0, 1))
    media.define(item("a", 1))
    media.expect(message)
    media.encode_next()
    assert held.has_begun.wait(60)
    media.forget(["a"])
    media.remove(1)
    again = sequence(2, MediaSpan("a", 0, 1))
    media.define(item("a", 1))
    media.expect(again)
    held.may_go.set()
    until_encoded(media)
    assert not media.is_ready(again), "the item that was forgotten is another one"
    until_encoded(media)
    assert media.is_ready(again)
    media.add(Sequence(again))


def test_a_failure_in_the_thread_fails_its_sequences_alone():
    media = CoreMedia(CountingEncoder(), in_thread=True)
    for seq_id, (key, number) in enumerate((("a", -1), ("b", 2)), 1):
        media.define(item(key, number))
        media.expect(sequence(seq_id, MediaSpan(key, 0, 1)))
    for _ in range(2):
        until_encoded(media)
    with pytest.raises(EngineFailure):
        media.add(Sequence(sequence(1, MediaSpan("a", 0, 1))))
    media.add(Sequence(sequence(2, MediaSpan("b", 0, 1))))


def wanted(media, *names, tenant=""):
    """Have a sequence for each item wait, of one vector unless it is given."""
    messages = []
    for name in names:
        made = name if isinstance(name, DefineMedia) else item(f"{tenant}{name}", name)
        media.define(made)
        seq_id = 1000 * len(tenant) + int(made.key.removeprefix(tenant))
        messages.append(sequence(seq_id, MediaSpan(made.key, 0, 1), tenant=tenant))
        media.expect(messages[-1])
    return messages


def vector(media, message):
    found = Sequence(message)
    media.add(found)
    return found.inputs[0].vectors[0, 0].item()


def test_items_that_wait_at_the_same_time_are_encoded_together_up_to_the_budget():
    encoder = BatchingEncoder()
    media = CoreMedia(encoder, max_tokens=3)
    messages = wanted(media, 1, 2, 3, 4, 5)
    assert media.next_seq_ids == [1, 2, 3]
    assert media.encode_next()
    assert [media.is_ready(message) for message in messages] == [True] * 3 + [False] * 2
    assert media.encode_next()
    assert not media.encode_next()
    assert encoder.batches == [[1, 2, 3], [4, 5]]
    assert encoder.calls == 0
    assert [vector(media, message) for message in messages] == [1, 2, 3, 4, 5]


def test_vectors_that_were_made_together_are_kept_one_by_one():
    media = CoreMedia(BatchingEncoder(), max_tokens=8, cache_bytes=VECTOR_BYTES)
    messages = wanted(media, 1, 2)
    media.encode_next()
    first, second = (Sequence(message) for message in messages)
    for found in (first, second):
        media.add(found)
    pointers = {found.inputs[0].vectors.untyped_storage().nbytes() for found in (first, second)}
    assert pointers == {VECTOR_BYTES}


def test_a_large_item_is_encoded_in_parts():
    encoder = BatchingEncoder()
    media = CoreMedia(encoder, max_tokens=2)
    media.define(item("a", 1, 2, 3, 4, 5))
    message = sequence(1, MediaSpan("a", 0, 5))
    media.expect(message)
    assert media.encode_next()
    found = Sequence(message)
    media.add(found)
    assert found.inputs[0].vectors[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert encoder.calls == 3


def test_items_of_other_shapes_are_encoded_apart():
    encoder = BatchingEncoder()
    media = CoreMedia(encoder, max_tokens=8)
    wanted(media, 1, item("2", 2, 2), 3)
    while media.encode_next():
        pass
    assert encoder.batches == [[1, 3]]
    assert encoder.calls == 1, "one call for the item of two numbers"


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_broken_item_fails_alone_although_it_was_to_be_encoded_with_others(in_thread):
    encoder = BatchingEncoder()
    media = CoreMedia(encoder, max_tokens=8, in_thread=in_thread)
    good, broken, other = wanted(media, 1, item("2", -2), 3)
    until_encoded(media)
    assert encoder.batches == [[1, -2, 3]]
    assert encoder.calls == 3
    assert [vector(media, message) for message in (good, other)] == [1, 3]
    with pytest.raises(EngineFailure):
        media.add(Sequence(broken))


def test_numbers_that_are_not_finite_fail_their_item_alone():
    encoder = BatchingEncoder()
    media = CoreMedia(encoder, max_tokens=8)
    good, broken = wanted(media, 1, item("2", float("inf")))
    media.encode_next()
    assert encoder.calls == 0
    assert vector(media, good) == 1
    with pytest.raises(EngineFailure):
        media.add(Sequence(broken))


def test_a_device_that_is_lost_ends_the_core():
    class Lost(BatchingEncoder):
        def encode_together(self, items, counts):
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    encoder = Lost()
    media = CoreMedia(encoder, max_tokens=8)
    wanted(media, 1, 2)
    with pytest.raises(EngineFailure, match="computes nothing more"):
        media.encode_next()
    assert encoder.calls == 0, "nothing is tried on a device that is lost"


def test_one_image_of_a_tenant_does_not_wait_for_fifty_of_another(held):
    media = CoreMedia(held, in_thread=True)
    many = wanted(media, *range(1, 51), tenant="many")
    media.encode_next()
    (one,) = wanted(media, 60, tenant="one")
    held.may_go.set()
    until_encoded(media)
    until_encoded(media)
    assert media.is_ready(one)
    assert [media.is_ready(message) for message in many] == [True] + [False] * 49


def test_a_step_has_items_of_all_tenants_in_turn():
    encoder = BatchingEncoder()
    media = CoreMedia(encoder, max_tokens=4)
    wanted(media, *range(1, 51), tenant="many")
    wanted(media, 60, 61, tenant="one")
    media.encode_next()
    assert sorted(encoder.batches[0]) == [1, 2, 60, 61]


def test_vectors_that_are_given_cost_their_tenant_no_turn():
    encoder = BatchingEncoder()
    media = CoreMedia(encoder, max_tokens=4)
    given = item("5", *[5.0] * 1000)
    tensor = MediaTensor(GIVEN, "float32", [250, WIDTH], given.tensors[0].data)
    (first,) = wanted(media, DefineMedia("5", 250, [tensor]))
    wanted(media, 6)
    media.encode_next()
    assert media.is_ready(first)
    assert encoder.batches == []


def test_inputs_of_what_is_aborted_are_freed_at_once(held):
    """An item that waits has the only references to its tensors; one that is encoded loses them as that ends."""
    media, names = CoreMedia(held, in_thread=True), []
    for number in (1, 2):
        made = item(str(number), number)
        names.append(weakref.ref(made.tensors[0]))
        wanted(media, made)
        media.forget([made.key])
        del made
    media.encode_next()
    assert held.has_begun.wait(60)
    media.remove(2)
    assert names[1]() is None
    media.remove(1)
    held.may_go.set()
    until_encoded(media)
    assert names[0]() is None
    assert not media.encode_next()


def test_an_encoder_that_can_pause_computes_when_the_loop_lets_it():
    class Pausing(CountingEncoder):
        def call_between_parts(self, call):
            self.call = call

        def encode(self, tensors):
            self.call()
            return super().encode(tensors)

    encoder = Pausing()
    media = CoreMedia(encoder, in_thread=True)
    media.define(item("a", 1))
    media.expect(sequence(1, MediaSpan("a", 0, 1)))
    media.encode_next()
    media.compute_beside(0.0)
    assert encoder.calls == 0
    until_encoded(media)
    assert encoder.calls == 1
    media.close()
