"""Messages survive packing; a child core answers over its pipe, loads no Django and ends with its worker."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import fields, replace
from multiprocessing import Pipe
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import messages
from engine.api import EmbedOptions, LogprobOptions, SamplingParams, StopRules
from engine.config import EngineConfig
from engine.core.link import (
    CLOSED_SET,
    LinkClosed,
    PipeChannel,
    ProcessLink,
    pack,
    pack_config,
    unpack,
    unpack_config,
)
from engine.messages import (
    AbortSequences,
    AdapterLoaded,
    AddAdapter,
    AddSequence,
    CoreFailed,
    Heartbeat,
    LoadModel,
    QueryStats,
    RemoveAdapter,
    SampledLogprobs,
    SequenceOutput,
    Shutdown,
    StepResult,
)
from tests.engine.in_process import ThreadLink

number = st.integers(min_value=0, max_value=2**63)
finite = st.floats(allow_nan=False)
ids = st.lists(number, max_size=5)
to_core = st.one_of(
    st.builds(
        AddSequence,
        seq_id=number,
        prompt_ids=ids,
        output_ids=ids,
        sampling=st.builds(SamplingParams, temperature=finite, seed=number),
        stop=st.builds(StopRules, stop=st.lists(st.text(), max_size=2).map(tuple), stop_token_ids=ids.map(tuple)),
        logprobs=st.builds(LogprobOptions, enabled=st.booleans()),
        stop_ids=ids,
        max_tokens=number,
        cache_root=st.binary(),
        priority=st.integers(-100, 100),
        embed=st.none() | st.builds(EmbedOptions, st.sampled_from(["mean", "last"]), st.none() | number),
        adapter_id=number,
    ),
    st.builds(AddAdapter, number, st.text(), st.text()),
    st.builds(RemoveAdapter, number),
    st.builds(AbortSequences, ids),
    st.builds(QueryStats, st.booleans()),
    st.just(Shutdown()),
)
outputs = st.builds(
    SequenceOutput,
    seq_id=number,
    token_ids=ids,
    logprobs=st.none()
    | st.lists(st.builds(SampledLogprobs, logprob=finite, top_ids=ids, top_logprobs=st.lists(finite)), max_size=2),
    finish=st.none() | st.sampled_from(["stop", "length", "embedded", "aborted", "failed"]),
    num_cached=st.none() | number,
    started_at=st.none() | finite,
    vector=st.none() | st.lists(finite, max_size=4),
)
from_core = st.one_of(
    st.builds(StepResult, st.lists(outputs, max_size=3)),
    st.builds(Heartbeat, finite),
    st.builds(AdapterLoaded, number, st.text(), number, st.lists(st.text(), max_size=2), number),
    st.builds(CoreFailed, st.text(), st.text()),
)


@given(to_core | from_core)
def test_a_message_survives_packing(message):
    assert unpack(pack(message)) == message


def test_every_message_type_may_be_packed():
    assert {*messages.ToCore.__args__, *messages.FromCore.__args__} <= set(CLOSED_SET)


@pytest.mark.parametrize("intruder", [object(), {1, 2}, EngineConfig(Path("x"), "x"), StepResult([object()])])
def test_other_types_cannot_be_packed(intruder):
    with pytest.raises(TypeError):
        pack(intruder)


def test_bytes_that_are_no_message_raise():
    with pytest.raises(ValueError):
        unpack(b"\xc7\x00\x7f")


def test_a_configuration_is_sent_completely_with_an_absolute_path(tmp_path):
    config = EngineConfig(tmp_path / "model.gguf", "name", weights="float32", max_num_seqs=3, batch_invariant=True)
    assert unpack_config(pack_config(config)) == config
    relative = unpack_config(pack_config(EngineConfig(Path("model.gguf"), "name", kv_spill_folder=Path("data"))))
    assert (relative.model_path, relative.kv_spill_folder) == (Path.cwd() / "model.gguf", Path.cwd() / "data")
    (tmp_path / "link.gguf").symlink_to(config.model_path)
    assert unpack_config(pack_config(replace(config, model_path=tmp_path / "link.gguf"))).model_path.name == "link.gguf"
    assert {field.name for field in fields(EngineConfig)} == set(json.loads(pack_config(config)))


def echo(config, channel):
    """A core that answers each question with a heartbeat and leaves on Shutdown."""
    while True:
        for message in channel.receive(block=True):
            if isinstance(message, Shutdown):
                return
            channel.send(Heartbeat(1.0))


def test_a_core_in_a_thread_answers_and_ends():
    link = ThreadLink(EngineConfig(Path("x"), "x"), echo)
    link.send(QueryStats())
    assert link.receive() == Heartbeat(1.0)
    link.close(5.0)
    with pytest.raises(LinkClosed):
        link.receive()
    with pytest.raises(LinkClosed):
        link.send(QueryStats())


def test_a_pipe_keeps_order_and_reports_its_end():
    ours, theirs = Pipe()
    closed = []
    channel = PipeChannel(theirs, on_closed=lambda: closed.append(True) or channel._inbox.put(Shutdown()))
    for index in range(100):
        ours.send_bytes(pack(AbortSequences([index])))
    taken = []
    while len(taken) < 100:
        taken += channel.receive(block=True)
    assert taken == [AbortSequences([index]) for index in range(100)]
    channel.send(Heartbeat(2.0))
    assert unpack(ours.recv_bytes()) == Heartbeat(2.0)
    ours.close()
    assert channel.receive(block=True) == [Shutdown()]
    assert closed
    channel.send(Heartbeat(3.0))  # nothing receives it; nothing is raised


def test_a_child_silent_beyond_the_step_limit_is_ended(monkeypatch):
    """A hanging step that holds the interpreter's lock sends no heartbeats: the worker waited for ever."""
    popen = subprocess.Popen
    silent = [sys.executable, "-c", "import signal; signal.pause()"]
    monkeypatch.setattr("engine.core.link.subprocess.Popen", lambda command, **more: popen(silent, **more))
    link = ProcessLink(EngineConfig(Path("x"), "x", step_timeout_s=0.2))
    with pytest.raises(LinkClosed):
        link.receive()
    assert link._process.returncode is not None


def wait_for_end(link):
    with contextlib.suppress(LinkClosed):
        while True:
            link.receive()


@pytest.fixture
def link(tmp_path):
    """A child core for a model that is not there: it reports that and leaves."""
    link = ProcessLink(EngineConfig(tmp_path / "missing.gguf", "missing"))
    yield link
    link.close(0.0)


@pytest.mark.slow
def test_a_child_core_reports_why_it_cannot_load_and_exits(link):
    link.send(LoadModel())
    message = link.receive()
    while not isinstance(message, CoreFailed):
        message = link.receive()
    assert "missing.gguf" in message.message
    wait_for_end(link)
    with pytest.raises(LinkClosed):
        link.send(QueryStats())


def test_a_child_core_that_is_killed_closes_the_link(link):
    os.kill(link.pid, signal.SIGKILL)
    wait_for_end(link)


WORKER = """
import os, sys
from pathlib import Path
from engine.config import EngineConfig
from engine.core.link import ProcessLink
link = ProcessLink(EngineConfig(Path("missing.gguf"), "missing"))
print(link.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_child_core_dies_with_its_worker():
    """The worker is killed before its core has imported torch; the core still receives the end of file."""
    worker = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=False, timeout=60)
    pid = int(worker.stdout)
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([watched], [], [], 30)[0], "the core still runs"
    os.close(watched)


def test_a_worker_that_imports_the_engine_loads_neither_torch_nor_django():
    code = (
        "import sys, engine.engine; print([name for name in ('torch', 'django', 'celery', "
        "'transformers') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
