"""What a core needs, by the headers of a model's files, beside what the core and its runner take."""

from __future__ import annotations

import json
import os
import queue
import random
import subprocess
import sys
from pathlib import Path

import pytest

from chat.catalog.model_choice import model_choice
from engine.api import Completed, GenerationRequest, MemoryNeed, SamplingParams, StopRules
from engine.api.errors import ModelLoadError
from engine.api.request import RawPrompt
from engine.config import EngineConfig
from engine.core.link import ProcessLink, pack_config, thread_environment
from engine.core.memory_need import main, memory_need
from engine.engine import Engine
from engine.execution.kv_cache import bytes_per_block
from engine.execution.runner import ModelRunner
from engine.loading.loader import load_model
from tests.engine.random_model import random_model
from tests.engine.tiny_tokenizer import VOCAB_SIZE, write_tokenizer

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_tokenizer(folder)
    random_model(vocab_size=VOCAB_SIZE, max_position_embeddings=1024).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windowed")
    write_tokenizer(folder)
    changes = {"head_dim": 16, "sliding_window": 64, "num_hidden_layers": 6, "max_position_embeddings": 1024}
    random_model("Gemma3Text", vocab_size=VOCAB_SIZE, **changes).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["folder", "windowed"])
@pytest.mark.parametrize(
    "changes", [{}, {"max_model_len": 600}, {"kv_cache_bytes": 1 << 20}, {"weights": "float32", "max_num_seqs": 4}]
)
def test_cache_and_context_are_those_of_the_runner(request, name, changes):
    path = request.getfixturevalue(name)
    need = memory_need(EngineConfig(path, "tiny", **changes), 4 << 30)
    fixed = EngineConfig(path, "tiny", core_in_process=True, **changes | {"kv_cache_bytes": need.cache_bytes})
    loaded = load_model(path, weights=fixed.weights, max_model_len=fixed.max_model_len)
    runner = ModelRunner(loaded, fixed)
    dtype = runner._attention.keys.dtype
    assert need.cache_bytes == runner.num_blocks * bytes_per_block(runner.groups, dtype)
    assert need.context == runner.max_model_len
    assert need.max_context == 1024
    per_token = need.cache_bytes_per_token
    assert runner.groups.blocks_for(256) * bytes_per_block(runner.groups, dtype) <= 256 * per_token


def test_a_context_that_the_share_of_memory_has_no_room_for_is_counted_whole(folder):
    need = memory_need(EngineConfig(folder, "tiny", max_model_len=1024), 1 << 20)
    assert need.context == 1024
    assert need.cache_bytes == 1024 * need.cache_bytes_per_token
    assert "would fit" in need.refusal(need.total_bytes - MIB)


def test_a_context_without_memory_is_the_least_that_serves(folder):
    assert memory_need(EngineConfig(folder, "tiny"), 1 << 20).context == 256


def test_a_cache_that_is_configured_too_small_is_refused_as_by_the_engine(folder):
    with pytest.raises(ModelLoadError, match="raise kv_cache_bytes"):
        memory_need(EngineConfig(folder, "tiny", max_model_len=1024, kv_cache_bytes=1 << 14))


@pytest.mark.parametrize("length", [1025, 5000])
def test_a_context_beyond_the_model_is_refused(folder, length):
    with pytest.raises(ModelLoadError, match="max_model_len must be at most 1024"):
        memory_need(EngineConfig(folder, "tiny", max_model_len=length))


def test_it_prints_an_object_or_the_problem(folder, capsys):
    assert main(pack_config(EngineConfig(folder, "tiny")).decode(), str(4 << 30)) == 0
    printed = MemoryNeed(**json.loads(capsys.readouterr().out))
    assert printed.weights_bytes == memory_need(EngineConfig(folder, "tiny"), 4 << 30).weights_bytes
    assert main(pack_config(EngineConfig(folder / "missing", "tiny")).decode()) == 1
    assert capsys.readouterr().out.count("\n") == 1


class Served:
    """An engine whose core is a process that has filled its cache and computed steps of all sizes."""

    def __init__(self, config):
        self._published = queue.SimpleQueue()
        core = ProcessLink(config)
        self._engine = Engine(config, self._published.put, started_core=core)
        self._engine.start()
        self._random = random.Random(1)
        self._number = 0
        stats = self._engine.stats()
        capacity = stats.core.num_blocks * config.block_size
        length = min(stats.max_model_len - 16, capacity - 64)
        for _ in range(capacity // length + 2):
            self._answer([length], 2)
        self._answer([60] * min(config.max_num_seqs, capacity // 128), 30)
        fields = Path(f"/proc/{core.pid}/smaps_rollup").read_text().splitlines()[1:]
        self.resident_bytes = next(int(line.split()[1]) << 10 for line in fields if line.startswith("Rss:"))
        self._engine.close()

    def _answer(self, lengths, max_tokens):
        running = set()
        for length in lengths:
            self._number += 1
            running.add(f"{self._number}")
            self._engine.submit(
                GenerationRequest(
                    f"{self._number}",
                    "m",
                    (),
                    arrived_at=0.0,
                    sampling=SamplingParams(temperature=0.7),
                    stop=StopRules(max_tokens=max_tokens, ignore_eos=True),
                    raw=RawPrompt(token_ids=tuple(self._random.choices(range(10, 200), k=length))),
                )
            )
        while running:
            for run in self._published.get(timeout=120):
                if run.events[-1].is_terminal:
                    assert isinstance(run.events[-1].payload, Completed)
                    running.discard(run.run_id)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_a_core_that_is_full_takes_what_was_promised(kind, tmp_path):
    """Within a twentieth above the promise, and 15 % below it (benchmarks/LOG.md has the figures)."""
    if kind == "gguf":
        path = model_choice(path="", name="").path
    else:
        path = tmp_path
        write_tokenizer(path)
        sizes = {"vocab_size": 32000, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8}
        random_model(spread=0.1, num_attention_heads=8, num_key_value_heads=4, **sizes).save_pretrained(path)
    config = EngineConfig(path, "m", kv_cache_bytes=48 * MIB)
    printed = subprocess.run(
        [sys.executable, "-m", "engine.core.memory_need", pack_config(config).decode()],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env=os.environ | thread_environment(0),
    ).stdout
    promised = MemoryNeed(**json.loads(printed)).total_bytes
    resident = Served(config).resident_bytes
    assert 0.95 * resident <= promised <= 1.15 * resident, (promised / MIB, resident / MIB)
