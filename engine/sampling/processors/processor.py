"""The interface of logits processors: a class with a declaration, made once per sequence that names it.

    class Calm:
        spec = ProcessorSpec("calm", [ProcessorParameter("token_ids", "token_ids", is_required=True)])

        def __init__(self, setup: ProcessorSetup) -> None:
            self._token_ids = torch.tensor(setup.arguments["token_ids"])

        def apply(self, prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> None:
            logits[self._token_ids.to(logits.device)] -= 10.0

A request names it with `{"logits_processors": [{"qualname": "calm", "kwargs": {"token_ids": [0]}}]}`. The rules:
docs/adding-a-logits-processor.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from engine.api.request import Json
from engine.messages import ProcessorSpec


@dataclass(frozen=True, slots=True)
class ProcessorSetup:
    """The values that a processor is made with."""

    arguments: dict[str, Any]
    """By name, checked against the declaration; only those that the request gives."""
    free: dict[str, Json]
    """All free values of the request (vllm_xargs), unchecked."""
    prompt_ids: list[int]
    stop_ids: frozenset[int]
    """Tokens that end the sequence, with EOS unless the request ignores it."""
    vocab_size: int


class LogitsProcessor(Protocol):
    """A processor of the logits of one sequence. An exception ends that sequence and no other."""

    spec: ClassVar[ProcessorSpec]

    def __init__(self, setup: ProcessorSetup) -> None: ...

    def apply(self, prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> None:
        """Change logits (V,) float32 in place, depending on the tokens alone. Never change the lists.

        After rejected drafts the output is shorter than at the last call.
        """
