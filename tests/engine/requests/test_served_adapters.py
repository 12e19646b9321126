"""What the worker knows of adapters, and what it sends to cores that die while it adds, uses and removes them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.api import Completed, ModelLoadError, Rejected
from engine.api.errors import EngineUnavailable
from engine.messages import IMAGE_ADAPTER, AdapterLoaded, AddAdapter, AddSequence, RemoveAdapter
from tests.engine.scripted_core import READY, ScriptedCore
from tests.engine.stage import output, payloads

FIRST = IMAGE_ADAPTER + 1
"""The id of the first adapter that is added."""


@pytest.fixture
def caller():
    with ThreadPoolExecutor(1) as pool:
        yield pool


def added(stage, caller, name="one", **answer):
    """Add an adapter, of which the core says that it is loaded; return what the core heard."""
    waiting = caller.submit(stage.engine.add_adapter, name, Path("/adapters") / name)
    message = stage.core.hear(AddAdapter)
    stage.core.say(message=AdapterLoaded(message.adapter_id, **answer))
    waiting.result(20)
    return message


def test_an_adapter_can_be_named_once_the_core_has_answered(stage, caller):
    waiting = caller.submit(stage.engine.add_adapter, "one", "adapters/one")
    message = stage.core.hear(AddAdapter)
    assert message == AddAdapter(FIRST, "one", str(Path("adapters/one").absolute()))
    stage.submit("early", adapter="one")
    assert isinstance(payloads(stage.events_to_end("early"))[0], Rejected)
    assert stage.engine.adapters() == ()
    stage.core.say(message=AdapterLoaded(FIRST, "", 8, ["q_proj"], 100))
    info = waiting.result(20)
    assert (info.name, info.path, info.rank, info.modules, info.num_bytes) == ("one", message.path, 8, ("q_proj",), 100)
    assert stage.engine.adapters() == (info,)
    stage.submit("late", adapter="one")
    (sequence,) = stage.core.hear_sequences()
    assert sequence.adapter_id == FIRST
    stage.core.say(output(sequence, b"a", "length"))
    assert isinstance(payloads(stage.events_to_end("late"))[-1], Completed)


def test_an_error_of_the_core_is_raised_and_frees_what_the_core_holds(stage, caller):
    waiting = caller.submit(stage.engine.add_adapter, "one", "x")
    stage.core.say(message=AdapterLoaded(stage.core.hear(AddAdapter).adapter_id, "x: holds nothing"))
    with pytest.raises(ModelLoadError, match="x: holds nothing"):
        waiting.result(20)
    assert stage.core.hear(RemoveAdapter).adapter_id == FIRST
    assert added(stage, caller).adapter_id == FIRST + 1


def test_an_adapter_that_a_core_dies_of_is_not_given_to_the_next(make_stage, caller):
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second)
    waiting = caller.submit(stage.engine.add_adapter, "deadly", "x")
    stage.core.hear(AddAdapter)
    stage.core.die()
    with pytest.raises(ModelLoadError, match="core ended before it had loaded the adapter"):
        waiting.result(20)
    assert stage.engine.adapters() == ()
    second.hear(RemoveAdapter)
    assert second.has_heard_all()


def test_an_engine_that_closes_ends_the_waiting(make_stage, caller):
    stage = make_stage()
    waiting = caller.submit(stage.engine.add_adapter, "one", "x")
    stage.core.hear(AddAdapter)
    stage.engine.close()
    with pytest.raises(EngineUnavailable):
        waiting.result(20)
    with pytest.raises(EngineUnavailable):
        stage.engine.add_adapter("two", "x")


def test_the_next_core_has_adapters_before_their_sequences(make_stage, caller):
    """One that is removed is sent with the run that has it, and not for longer than that."""
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second)
    kept, removed = (added(stage, caller, name) for name in ("kept", "removed"))
    for adapter in (None, "kept", "removed"):
        stage.submit(f"run of {adapter}", adapter=adapter)
    stage.core.hear_sequences(3)
    stage.engine.remove_adapter("removed")
    assert stage.core.hear(RemoveAdapter).adapter_id == removed.adapter_id
    stage.core.die()
    assert second.hear() == kept
    sequences = second.hear_sequences(2)
    assert [sequence.adapter_id for sequence in sequences] == [0, kept.adapter_id]
    assert second.hear() == removed
    sequences.append(second.hear(AddSequence))
    assert sequences[-1].adapter_id == removed.adapter_id
    assert second.hear() == RemoveAdapter(removed.adapter_id)
    second.say(*(output(sequence, b"a", "length") for sequence in sequences))
    assert isinstance(payloads(stage.events_to_end("run of removed"))[-1], Completed)


def test_an_adapter_that_the_next_core_cannot_load_is_removed(make_stage, caller):
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second)
    message = added(stage, caller)
    stage.core.die()
    assert second.hear() == message
    second.say(message=AdapterLoaded(message.adapter_id, "the folder is gone"))
    assert second.hear(RemoveAdapter).adapter_id == message.adapter_id
    assert stage.engine.adapters() == ()


def test_many_threads_take_a_name_once(stage):
    """The first gets it; the others are refused, or wait for their turn and are refused then."""
    names = [f"{number % 3}" for number in range(12)]
    with ThreadPoolExecutor(len(names)) as pool:
        started = threading.Barrier(len(names))

        def add(name):
            started.wait(20)
            return stage.engine.add_adapter(name, "x")

        waiting = [pool.submit(add, name) for name in names]
        for _ in range(3):
            stage.core.say(message=AdapterLoaded(stage.core.hear(AddAdapter).adapter_id))
        outcomes = [future.exception(20) for future in waiting]
    assert sum(outcome is None for outcome in outcomes) == 3
    assert sorted(info.name for info in stage.engine.adapters()) == ["0", "1", "2"]
