"""Registration of processors, their effect on a row, and failures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.api.errors import ModelLoadError, RequestError
from engine.api.request import ProcessorCall, SamplingParams
from engine.config import EngineConfig
from engine.core.build import serve
from engine.core.link import pack, unpack
from engine.messages import CoreFailed, CoreReady, LoadModel
from engine.sampling.processors.registry import ProcessorRegistry, load_registry
from engine.sampling.sampler import Sampler
from tests.engine.in_process import QueueChannel
from tests.engine.sampling.processors.making import VOCAB_SIZE, Bomb, Halver, Reviver, apply
from tests.engine.sampling.reference import make_sequence

HERE = "tests.engine.sampling.processors.making"


def test_configured_processors_are_added_to_the_shipped_ones():
    registry = load_registry([f"{HERE}:Halver", f"{HERE}:Bomb"])
    assert [spec.name for spec in registry.specs] == ["bomb", "halver", "no_repeat_ngram", "token_trie"]


def test_processor_declarations_are_sent_to_the_worker():
    ready = CoreReady(1, 2, 3, load_registry([f"{HERE}:Halver"]).specs)
    assert unpack(pack(ready)) == ready


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("halver", "module:name"),
        (":Halver", "module:name"),
        (f"{HERE}:", "module:name"),
        ("no.such.module:Halver", "cannot be loaded"),
        (f"{HERE}:Nobody", "cannot be loaded"),
        (f"{HERE}:VOCAB_SIZE", "must be a class"),
        (f"{HERE}:Undeclared", "must be a class"),
        (f"{HERE}:OddKind", "token_id_lists"),
        (f"{HERE}:Shadow", "its own"),
    ],
)
def test_a_bad_processor_entry_stops_the_start_and_is_named(entry, says):
    with pytest.raises(ModelLoadError, match=says) as caught:
        load_registry([entry])
    assert repr(entry) in caught.value.message


def test_a_bad_processor_entry_is_reported_before_the_model_is_read(tmp_path):
    channel = QueueChannel()
    channel.inbox.put(LoadModel())
    serve(EngineConfig(tmp_path / "none.gguf", "none", processors=("halver",)), channel)
    failure = channel.outbox.get()
    assert isinstance(failure, CoreFailed)
    assert "'halver' must be written module:name" in failure.message


def test_processors_apply_in_the_order_of_the_request():
    registry = ProcessorRegistry([Halver, Reviver])

    def run(*names):
        calls = tuple(ProcessorCall(name) for name in names)
        row = torch.full((VOCAB_SIZE,), 8.0)
        registry.chain(make_sequence(1, SamplingParams(processors=calls)), VOCAB_SIZE).apply([], row)
        return row[0].item()

    assert [run("halver"), run("halver", "halver"), run("halver", "reviver"), run("reviver", "halver")] == [
        4.0,
        2.0,
        1.0,
        0.5,
    ]


def test_a_processor_reads_its_arguments_and_the_free_values():
    registry = ProcessorRegistry([Halver])
    assert (
        apply("halver", [], 0.25, free={"by": 4}, logits=torch.full((VOCAB_SIZE,), 8.0), registry=registry)[0] == 2.25
    )


def test_forbidden_tokens_stay_forbidden_after_a_processor():
    logits = torch.zeros(VOCAB_SIZE)
    logits[[3, 9]] = -torch.inf
    row = apply("reviver", [], logits=logits, registry=ProcessorRegistry([Reviver]))
    assert row.isneginf().nonzero().flatten().tolist() == [3, 9]


def test_sequence_whose_processor_cannot_be_made_is_not_added():
    sampler = Sampler(VOCAB_SIZE, "cpu", ProcessorRegistry([Bomb]))
    for call, error in (
        (ProcessorCall("bomb", (0,)), RuntimeError),
        (ProcessorCall("bomb"), RequestError),
        (ProcessorCall("x"), KeyError),
    ):
        with pytest.raises(error):
            sampler.add(make_sequence(1, SamplingParams(processors=(call,))))


def test_a_processor_that_raises_fails_its_own_sequence_without_a_field():
    logits = torch.randn(3, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))
    sampler = Sampler(VOCAB_SIZE, "cpu", ProcessorRegistry([Bomb]))
    crowd = [make_sequence(row, SamplingParams(temperature=0.0)) for row in range(3)]
    crowd[1] = make_sequence(1, SamplingParams(temperature=0.0, processors=(ProcessorCall("bomb", (1,)),)))
    for sequence in crowd:
        sampler.add(sequence)
    first = sampler.sample(logits.clone(), crowd)
    assert [token.token_id for token in first] == logits.argmax(1).tolist()
    for sequence, token in zip(crowd, first, strict=True):
        sequence.output_ids.append(token.token_id)
    second = sampler.sample(logits.clone(), crowd)
    assert [(token.is_failed, token.failed_param) for token in second] == [(False, ""), (True, ""), (False, "")]


def test_the_example_of_the_documentation_works(tmp_path, monkeypatch):
    page = Path("docs/adding-a-logits-processor.md").read_text(encoding="utf-8")
    (tmp_path / "documented_calm.py").write_text(page.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    registry = load_registry(["documented_calm:Calm"])
    row = apply("calm", [], [3, 5], registry=registry, strength=4)
    assert row.nonzero().flatten().tolist() == [3, 5]
    assert row[3] == -4.0
