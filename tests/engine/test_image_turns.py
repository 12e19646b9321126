"""Images of several tenants at one encoder, through the engine: whose is next, and which are encoded together."""

from __future__ import annotations

import threading

import pytest

from engine.api import ErrorCode, Outcome
from engine.api.media import MediaLimits
from engine.models.transformers_backend.media_encoder import TransformersMediaEncoder
from tests.engine.seeing_folders import image_of, write_seeing
from tests.engine.test_images import GREEDY, engine_messages, token_ids


class Gate:
    """Lets as many calls of the encoder through as it is told to, and counts them with their images."""

    def __init__(self, monkeypatch):
        self.batches = []
        self.has_begun = threading.Event()
        self._permits = threading.Semaphore(0)
        alone, together = TransformersMediaEncoder.encode, TransformersMediaEncoder.encode_together

        def encode(encoder, tensors):
            self._pass(1)
            return alone(encoder, tensors)

        def encode_together(encoder, items, counts):
            self._pass(len(items))
            monkeypatch.setattr(TransformersMediaEncoder, "encode", alone)
            made = together(encoder, items, counts)
            monkeypatch.setattr(TransformersMediaEncoder, "encode", encode)
            return made

        monkeypatch.setattr(TransformersMediaEncoder, "encode", encode)
        monkeypatch.setattr(TransformersMediaEncoder, "encode_together", encode_together)

    def _pass(self, num_images):
        self.has_begun.set()
        assert self._permits.acquire(timeout=60)
        self.batches.append(num_images)

    def let(self, count):
        self._permits.release(count)


def ended(engine, run_id):
    """Return the events of a run among others, once it has ended."""
    events = []
    while not (events and events[-1].is_terminal):
        events += [event for run in engine.publication() if run.run_id == run_id for event in run.events]
    return events


@pytest.fixture
def gate(monkeypatch):
    gate = Gate(monkeypatch)
    yield gate
    gate.let(1000)


def ask(engine, run_id, seed, **options):
    engine.submit(run_id, messages=engine_messages([[image_of(40, 30, seed), "what is it?"]]), **GREEDY, **options)


def test_the_one_image_of_a_tenant_does_not_wait_for_all_of_another(tmp_path, make_real_engine, gate):
    write_seeing(tmp_path, "llava")
    engine = make_real_engine(tmp_path)
    for number in range(5):
        ask(engine, f"many-{number}", number, tenant="many")
    assert gate.has_begun.wait(60)
    ask(engine, "one", 9, tenant="one")
    gate.let(2)
    assert token_ids(ended(engine, "one"))
    assert gate.batches == [1, 1]


def test_what_unfinished_requests_hold_is_bounded_and_free_once_they_are_stopped(tmp_path, make_real_engine, gate):
    """Inputs of an image are 28 x 28 pixels of three floats, 9408 bytes."""
    write_seeing(tmp_path, "llava")
    engine = make_real_engine(tmp_path, media=MediaLimits(max_encoder_input_bytes=4 * 9408))
    for number in range(2):
        ask(engine, f"held-{number}", number)
    assert gate.has_begun.wait(60)
    ask(engine, "refused", 3)
    refused = ended(engine, "refused")[-1].payload
    assert refused.code is ErrorCode.OVERLOADED
    assert "LIGHTCONE_MAX_ENCODER_INPUT_BYTES" in refused.message
    engine.engine.abort("held-1", Outcome.STOPPED)
    ended(engine, "held-1")
    engine.core_stats()  # its answer comes behind the end of the run
    ask(engine, "taken", 4)
    gate.let(2)
    assert token_ids(ended(engine, "taken"))


def test_images_that_wait_while_one_is_encoded_are_encoded_together(tmp_path, make_real_engine, gate):
    write_seeing(tmp_path, "llava")
    engine = make_real_engine(tmp_path, media=MediaLimits(max_encoder_tokens=64))
    names = [f"run-{number}" for number in range(6)]
    for number, name in enumerate(names):
        ask(engine, name, number)
        assert gate.has_begun.wait(60)
    gate.let(3)
    found = engine.events_to_end(*names)
    assert len({tuple(token_ids(events)) for events in found.values()}) > 1
    assert gate.batches == [1, 4, 1]
