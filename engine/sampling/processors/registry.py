"""The logits processors that requests may name: those that are shipped and those that the operator configures.

Modules are imported when the core starts; a name in a request is looked up, never imported.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Iterable
from typing import Any

import torch

from engine.api.errors import ModelLoadError
from engine.messages import ProcessorParameter, ProcessorSpec
from engine.sampling.processors.arguments import PARAMETER_KINDS, bind_arguments
from engine.sampling.processors.processor import LogitsProcessor, ProcessorSetup
from engine.sampling.processors.shipped import NoRepeatNgram, TokenTrie
from engine.sequence import Sequence

logger = logging.getLogger(__name__)

SHIPPED: tuple[type[LogitsProcessor], ...] = (NoRepeatNgram, TokenTrie)


class ProcessorChain:
    """The processors of one sequence. Tokens that are already forbidden stay forbidden, whatever a processor writes."""

    def __init__(self, processors: list[LogitsProcessor], prompt_ids: list[int]) -> None:
        self._processors = processors
        self._prompt_ids = prompt_ids

    def apply(self, output_ids: list[int], logits: torch.Tensor) -> None:
        """Change logits (V,) in place. If a processor raises, the row becomes NaN, which ends only its sequence."""
        is_forbidden = logits.isneginf()
        for processor in self._processors:
            try:
                processor.apply(self._prompt_ids, output_ids, logits)
            except Exception:
                logger.exception("the logits processor %s failed", processor.spec.name)
                logits.fill_(float("nan"))
                return
        logits.masked_fill_(is_forbidden, float("-inf"))


class ProcessorRegistry:
    """Processors by the name in their declaration."""

    def __init__(self, classes: Iterable[type[LogitsProcessor]] = SHIPPED) -> None:
        self._classes = {cls.spec.name: cls for cls in classes}

    @property
    def specs(self) -> list[ProcessorSpec]:
        """The declarations, sorted by name."""
        return [self._classes[name].spec for name in sorted(self._classes)]

    def chain(self, sequence: Sequence, vocab_size: int) -> ProcessorChain:
        """Make the processors that a sequence names.

        Raises KeyError for an unknown name, RequestError for wrong arguments, and what the constructors raise.
        """
        processors = []
        free = sequence.sampling.processor_args
        for call in sequence.sampling.processors:
            cls = self._classes[call.name]
            arguments = bind_arguments(cls.spec, call, free, vocab_size)
            processors.append(cls(ProcessorSetup(arguments, free, sequence.prompt_ids, sequence.stop_ids, vocab_size)))
        return ProcessorChain(processors, sequence.prompt_ids)


def load_registry(entries: Iterable[str]) -> ProcessorRegistry:
    """Return a registry of the shipped processors and those at `entries`, each `module:name`. Raises ModelLoadError."""
    classes = list(SHIPPED)
    for entry in entries:
        cls = _load(entry)
        if cls.spec.name in {other.spec.name for other in classes}:
            raise ModelLoadError(
                f"the logits processor {entry!r} has the name {cls.spec.name!r}, which another one has; give it its own"
            )
        classes.append(cls)
    return ProcessorRegistry(classes)


def _load(entry: str) -> Any:
    module_name, _, class_name = entry.partition(":")
    if not module_name or not class_name:
        raise ModelLoadError(f"the logits processor {entry!r} must be written module:name")
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # the operator's module may raise anything when it is imported
        raise ModelLoadError(f"the logits processor {entry!r} cannot be loaded: {error}") from error
    if (
        not inspect.isclass(cls)
        or not callable(getattr(cls, "apply", None))
        or not _is_declaration(getattr(cls, "spec", None))
    ):
        kinds = ", ".join(sorted(PARAMETER_KINDS))
        raise ModelLoadError(
            f"the logits processor {entry!r} must be a class with a method apply and a ProcessorSpec in `spec`, "
            f"whose parameters have different names and kinds among {kinds}; see docs/adding-a-logits-processor.md"
        )
    return cls


def _is_declaration(spec: object) -> bool:
    if not isinstance(spec, ProcessorSpec) or not spec.name or not isinstance(spec.name, str):
        return False
    parameters = spec.parameters
    if not all(
        isinstance(parameter, ProcessorParameter) and parameter.kind in PARAMETER_KINDS for parameter in parameters
    ):
        return False
    return len({parameter.name for parameter in parameters}) == len(parameters)
