"""Steps that are left between two layers: who is computed meanwhile, what an abort frees, and that no token differs.

The engine looks for messages after each layer (`max_step_wait_s` is 0), and tests make it wait there for a message.
"""

from __future__ import annotations

import threading

import pytest
import torch

from engine.api import Outcome, SamplingParams, StopRules
from engine.execution.batch import dummy_sequence
from engine.execution.cut_steps import CutStep, CutSteps
from engine.execution.runner import ModelRunner
from engine.execution.spill_file import SpillFile
from engine.execution.token_budget import STEP_SECONDS
from engine.quantization.panel_weight import PanelWeight
from engine.sequence import Chunk, StepPlan
from tests.engine.in_process import ThreadLink
from tests.engine.random_model import random_model
from tests.engine.real_engine import RealEngine, tokens_of
from tests.engine.tiny_tokenizer import IM_END, write_tokenizer

PANELS = pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")
NUM_LAYERS, BLOCK_BYTES = 4, 4 * 2 * 2 * 64 * 16 * 2
LONG, OTHER_LONG = "hello world " * 30, "world hello " * 25
"""Of 151 and 165 tokens: two or three steps."""
GREEDY = SamplingParams(temperature=0.0, seed=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = random_model(
        seed=7,
        vocab_size=288,
        hidden_size=128,
        num_attention_heads=2,
        num_hidden_layers=NUM_LAYERS,
        max_position_embeddings=1024,
        bos_token_id=IM_END,
        eos_token_id=IM_END,
    )
    model.model.embed_tokens.weight.data *= 8
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture
def start(model, monkeypatch):
    """Return a function that starts an engine whose steps are all recorded."""
    monkeypatch.setattr("engine.quantization.scheme.possible_forms", lambda shape, four_bit: {"panels"})
    engines = []

    def start(**changes):
        options = {"weights": "auto", "max_step_wait_s": 0.0, "kv_cache_bytes": 100 * BLOCK_BYTES} | changes
        engines.append(RealEngine(model, **options))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


class Layers:
    """A record of what the core computes: ("layer", sequences of the step in flight), ("step", sequences of a step).

    `pause` makes the core wait after the first layer of a step until the worker has sent it something more.
    """

    def __init__(self, monkeypatch) -> None:
        self.computed: list[tuple[str, list[int]]] = []
        self._is_armed = threading.Event()
        self._in_flight, self._sent = threading.Event(), threading.Event()
        advance, forward, send = CutStep.advance, ModelRunner.forward, ThreadLink.send

        def advance_and_wait(step):
            is_over = advance(step)
            self.computed.append(("layer", ids_of(step.plan)))
            if self._is_armed.is_set():
                self._is_armed.clear()
                self._in_flight.set()
                assert self._sent.wait(60)
            return is_over

        def record_forward(runner, plan):
            self.computed.append(("step", ids_of(plan)))
            return forward(runner, plan)

        def send_and_tell(link, message):
            send(link, message)
            if self._in_flight.is_set():
                self._sent.set()

        monkeypatch.setattr(CutStep, "advance", advance_and_wait)
        monkeypatch.setattr(ModelRunner, "forward", record_forward)
        monkeypatch.setattr(ThreadLink, "send", send_and_tell)

    def pause(self):
        self.computed.clear()
        self._in_flight.clear()
        self._sent.clear()
        self._is_armed.set()

    def wait_until_paused(self):
        assert self._in_flight.wait(60)


def ids_of(plan):
    return [chunk.sequence.seq_id for chunk in plan.chunks]


@pytest.fixture
def layers(monkeypatch):
    return Layers(monkeypatch)


def asked(max_tokens, **changes):
    return {"sampling": GREEDY, "stop": StopRules(max_tokens=max_tokens, min_tokens=max_tokens)} | changes


def completed(events):
    return tokens_of([event.payload for event in events])


def expected_tokens(start, *requests):
    """Return the tokens of each request alone, text and options, where no step is cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CutSteps, "takes", lambda self, plan: False)
        engine = start()
        return [tokens_of(engine.answer(text, **options)) for text, options in requests]


@PANELS
def test_a_newcomer_has_its_token_while_a_long_step_is_in_flight(start, layers):
    requests = (LONG, asked(3)), ("end", asked(1))
    expected = expected_tokens(start, *requests)
    engine = start()
    layers.pause()
    engine.submit("long", LONG, **asked(3))
    layers.wait_until_paused()
    engine.submit("short", "end", **asked(1))
    events = engine.events_to_end("long", "short")
    assert [completed(events[run_id]) for run_id in ("long", "short")] == expected
    (long,), (short,) = layers.computed[0][1], next(ids for kind, ids in layers.computed if kind == "step")
    assert layers.computed[: NUM_LAYERS + 1] == [
        ("layer", [long]),
        ("step", [short]),
        *[("layer", [long])] * (NUM_LAYERS - 1),
    ]


@PANELS
def test_a_newcomer_with_a_long_prompt_uses_the_same_program_in_between(start, layers):
    """Tokens are those of uncut steps, and both prompts are found in the prefix cache later."""
    requests = (LONG, asked(8)), (OTHER_LONG, asked(8))
    expected = expected_tokens(start, *requests)
    engine = start()
    layers.pause()
    engine.submit("long", LONG, **asked(8))
    layers.wait_until_paused()
    engine.submit("other", OTHER_LONG, tenant="other", **asked(8))
    events = engine.events_to_end("long", "other")
    assert [completed(events[run_id]) for run_id in ("long", "other")] == expected
    kinds = [kind for kind, _ in layers.computed[: NUM_LAYERS + 1]]
    assert kinds == ["layer", "step", *["layer"] * (NUM_LAYERS - 1)]
    assert len(layers.computed[1][1]) == 1
    assert tokens_of(engine.answer(LONG, **asked(8))) == expected[0]
    assert engine.core_stats().num_cached_tokens > 0


@PANELS
def test_an_abort_drops_the_rest_of_a_step_and_frees_its_blocks(start, layers):
    expected = expected_tokens(start, (OTHER_LONG, asked(3)), (LONG, asked(3)))
    engine = start()
    layers.pause()
    engine.submit("long", LONG, **asked(3))
    layers.wait_until_paused()
    engine.engine.abort("long", Outcome.STOPPED)
    engine.events_to_end("long")
    stats = engine.core_stats()
    assert (stats.integrity, stats.num_free_blocks) == ("", stats.num_blocks)
    assert layers.computed == [("layer", layers.computed[0][1])], "the other layers are not computed"
    assert [tokens_of(engine.answer(text, **asked(3))) for text in (OTHER_LONG, LONG)] == expected


@PANELS
def test_a_prompt_that_shares_its_beginning_waits_for_the_step_in_flight(start, layers):
    requests = (LONG, asked(2)), (LONG + "hello", asked(2))
    expected = expected_tokens(start, *requests)
    engine = start()
    layers.pause()
    engine.submit("first", LONG, **asked(2))
    layers.wait_until_paused()
    engine.submit("second", LONG + "hello", **asked(2))
    events = engine.events_to_end("first", "second")
    assert [completed(events[run_id]) for run_id in ("first", "second")] == expected
    assert events["second"][-1].payload.usage.cached_tokens > 0
    assert {kind for kind, _ in layers.computed[:NUM_LAYERS]} == {"layer"}


@PANELS
@pytest.mark.slow
def test_tokens_are_the_same_where_prompts_in_flight_fill_a_tiny_cache(start, layers):
    """Sequences that run beside the step in flight are preempted for blocks, and never those in it."""
    requests = [
        (f"{number} {'hello world ' * (6 + 4 * number)}", asked(40, tenant="ab"[number % 2])) for number in range(6)
    ]
    expected = expected_tokens(start, *requests)
    engine = start(kv_cache_bytes=18 * BLOCK_BYTES)
    layers.pause()
    for number, (text, options) in enumerate(requests):
        engine.submit(f"{number}", text, **options)
        if not number:
            layers.wait_until_paused()
    events = engine.events_to_end(*map(str, range(len(requests))))
    assert [completed(events[str(number)]) for number in range(len(requests))] == expected
    stats = engine.core_stats()
    assert stats.num_preemptions > 0
    assert stats.integrity == ""


@PANELS
def test_a_prefix_is_restored_beside_a_step_in_flight(start, layers, monkeypatch, tmp_path):
    """The step writes over blocks that have just been spilled, and a block is read back after each of its layers."""
    monkeypatch.setattr("engine.scheduling.spilled_blocks.RESTORED_BYTES", BLOCK_BYTES)
    kept, long = "hello hello " * 17, "world world " * 17
    expected = expected_tokens(start, (kept, asked(4)), (long, asked(4)))
    engine = start(kv_cache_bytes=26 * BLOCK_BYTES, kv_spill_bytes=200 * BLOCK_BYTES, kv_spill_folder=tmp_path)
    for text in (kept, OTHER_LONG, "hello " + OTHER_LONG):
        engine.answer(text, **asked(4))
    read = SpillFile.read

    def record_read(*arguments):
        layers.computed.append(("read", []))
        read(*arguments)

    monkeypatch.setattr(SpillFile, "read", record_read)
    layers.pause()
    engine.submit("long", long, **asked(4))
    layers.wait_until_paused()
    engine.submit("kept", kept, **asked(4))
    events = engine.events_to_end("kept", "long")
    assert [completed(events[run_id]) for run_id in ("kept", "long")] == expected
    assert [kind for kind, _ in layers.computed][: 2 * NUM_LAYERS] == ["layer", "read"] * NUM_LAYERS
    assert events["kept"][-1].payload.usage.cached_tokens == 80


class Clocked:
    """A runner and its steps: each layer takes `layer_s` on a clock."""

    num_layers = 10

    def __init__(self, layer_s):
        self.layer_s = layer_s
        self.now = 100.0
        self.num_done = 0

    def begin(self, plan):
        return self

    def advance(self):
        self.num_done += 1
        self.now += self.layer_s
        return torch.zeros(1) if self.num_done == self.num_layers else None

    def step(self, *, gives_tokens=False, max_step_wait_s=0.25):
        plan = StepPlan((Chunk(dummy_sequence(1, [1] * 99, []), 0, 90, gives_tokens),))
        return CutSteps(self, max_step_wait_s, lambda: self.now).begin(plan)


def test_messages_are_looked_for_ten_times_in_the_time_that_they_may_wait():
    clocked = Clocked(0.01)
    step = clocked.step()
    assert not step.advance()
    assert clocked.num_done == 2, "a third layer would end after 0.025 s"
    while not step.advance():
        pass
    assert (clocked.num_done, round(step.seconds, 6)) == (10, 0.1)


def test_a_layer_that_takes_long_is_computed_alone():
    clocked = Clocked(0.2)
    step = clocked.step()
    assert not step.advance()
    assert clocked.num_done == 1


@pytest.mark.parametrize(
    ("layer_s", "gives_tokens", "is_next"), [(0.01, False, True), (0.01, True, False), (0.04, True, True)]
)
def test_a_newcomer_is_next_unless_the_step_soon_gives_somebody_a_token(layer_s, gives_tokens, is_next):
    clocked = Clocked(layer_s)
    step = clocked.step(gives_tokens=gives_tokens)
    assert not step.advance()
    assert not step.is_others_turn
    step.announce_newcomer()
    assert step.is_others_turn is is_next


@pytest.mark.parametrize("others_s", [0.0, 0.04, 0.09, 0.3])
def test_running_streams_wait_for_as_many_layers_as_their_gaps_allow(others_s):
    """A gap of STEP_SECONDS; if steps of others take longer than that, a third of their time is the other step's."""
    clocked = Clocked(0.001)
    clocked.num_layers = 10_000
    step = clocked.step()
    assert not step.advance()
    step.announce_newcomer()
    step.begin_turn_of_others()
    clocked.now += others_s
    began = clocked.now
    step.end_turn_of_others(has_computed=True)
    while not step.is_others_turn:
        assert not step.advance()
    assert clocked.now - began == pytest.approx(max(STEP_SECONDS - others_s, others_s / 3), abs=0.0011)


def test_a_step_is_not_left_again_if_the_others_have_nothing_to_compute():
    clocked = Clocked(0.001)
    step = clocked.step()
    step.announce_newcomer()
    step.begin_turn_of_others()
    step.end_turn_of_others(has_computed=False)
    clocked.now += 100.0
    assert not step.is_others_turn
    step.announce_newcomer()
    assert step.is_others_turn
