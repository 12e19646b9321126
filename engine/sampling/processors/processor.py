"""What a logits processor is: a class with a declaration, made once per sequence that names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from engine.api.tools import Json
from engine.messages import ProcessorSpec


@dataclass(frozen=True, slots=True)
class ProcessorSetup:
    """What a processor is made with. `arguments`: by name, checked against its declaration, only those that the request gives.

    `free`: all free values of the request (vllm_xargs), unchecked. `stop_ids` end the sequence, EOS among them unless it is ignored.
    """

    arguments: dict[str, Any]
    free: dict[str, Json]
    prompt_ids: list[int]
    stop_ids: frozenset[int]
    vocab_size: int


class LogitsProcessor(Protocol):
    """Changes the logits of one sequence. An exception ends that sequence, and no other."""

    spec: ClassVar[ProcessorSpec]

    def __init__(self, setup: ProcessorSetup) -> None: ...

    def apply(self, prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> None:
        """Change logits (V,) float32 in place; the lists are to be read only.

        What it does must follow from the tokens: the output may be shorter than at the last call, as drafts are withdrawn.
        """
