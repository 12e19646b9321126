"""Processors as the core builds them and as an operator may write them."""

from __future__ import annotations

import torch

from engine.api.request import ProcessorCall, SamplingParams
from engine.messages import ProcessorParameter, ProcessorSpec
from engine.sampling.processors.registry import ProcessorRegistry
from tests.engine.sampling.reference import make_sequence

VOCAB_SIZE = 64


class Halver:
    """A processor that divides logits of even ids by the request's free value `by`, or by two."""

    spec = ProcessorSpec("halver", [ProcessorParameter("offset", "float")])

    def __init__(self, setup):
        self._by = setup.free.get("by", 2)
        self._offset = setup.arguments.get("offset", 0.0)

    def apply(self, prompt_ids, output_ids, logits):
        logits[::2] = logits[::2] / self._by + self._offset


class Reviver:
    """A processor that tries to allow forbidden tokens again."""

    spec = ProcessorSpec("reviver")

    def __init__(self, setup):
        pass

    def apply(self, prompt_ids, output_ids, logits):
        logits.fill_(1.0)


class Bomb:
    """Raises once the output has reached a length, or at once when it is made with 0."""

    spec = ProcessorSpec("bomb", [ProcessorParameter("length", "int", is_required=True)])

    def __init__(self, setup):
        self._length = setup.arguments["length"]
        if not self._length:
            raise RuntimeError("at once")

    def apply(self, prompt_ids, output_ids, logits):
        if len(output_ids) >= self._length:
            raise RuntimeError("later")


class Shadow:
    """A processor with the name of a shipped one."""

    spec = ProcessorSpec("token_trie")

    def apply(self, prompt_ids, output_ids, logits):
        pass


class Undeclared:
    def apply(self, prompt_ids, output_ids, logits):
        pass


class OddKind(Reviver):
    spec = ProcessorSpec("odd", [ProcessorParameter("path", "file")])


def apply(name, output_ids, *args, prompt_ids=(1,), stop_ids=(), free=None, logits=None, registry=None, **kwargs):
    """Return the logits (V,), zeros unless given, after one processor has seen this output."""
    sampling = SamplingParams(processors=(ProcessorCall(name, args, kwargs),), processor_args=free or {})
    chain = (registry or ProcessorRegistry()).chain(
        make_sequence(1, sampling, list(prompt_ids), stop_ids=stop_ids), VOCAB_SIZE
    )
    row = torch.zeros(VOCAB_SIZE) if logits is None else logits.clone()
    chain.apply(list(output_ids), row)
    return row


def forbidden(*args, **kwargs):
    return set(apply(*args, **kwargs).isneginf().nonzero().flatten().tolist())


def allowed(*args, **kwargs):
    return set(range(VOCAB_SIZE)) - forbidden(*args, **kwargs)
