"""The media of a core: what is encoded when, kept for whom, and forgotten; with an encoder that counts."""

from __future__ import annotations

import threading

import pytest
import torch

from engine.api import LogprobOptions, SamplingParams, StopRules
from engine.api.errors import EngineFailure
from engine.execution.media import CoreMedia
from engine.layers.embedding import EncodedMedia
from engine.messages import AddSequence, DefineMedia, MediaSpan, MediaTensor
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


def item(key, *numbers, num_vectors=None):
    data = torch.tensor(numbers, dtype=torch.float32).numpy().tobytes()
    count = len(numbers) if num_vectors is None else num_vectors
    return DefineMedia(key, count, [MediaTensor("pixels", "float32", [len(numbers)], data)])


def sequence(seq_id, *spans, prompt=32):
    options = SamplingParams(seed=0), StopRules(), LogprobOptions()
    return AddSequence(seq_id, [7] * prompt, [], *options, [], 1, cache_root=b"", media=list(spans))


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
