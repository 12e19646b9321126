"""What a model is, as its files say, and what the adapters beside it are."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.api.request import Task


class ModelKind(StrEnum):
    """What a model is for."""

    CHAT = "chat"
    """It generates; its states can become vectors too."""
    EMBEDDING = "embedding"
    """It turns texts into vectors."""
    RERANKER = "reranker"
    """It scores how well documents answer a query."""
    TRANSCRIBER = "transcriber"
    """It writes down speech."""


KINDS_OF_TASKS = {
    Task.GENERATE: (ModelKind.CHAT,),
    Task.EMBED: (ModelKind.EMBEDDING, ModelKind.CHAT),
    Task.SCORE: (ModelKind.RERANKER,),
    Task.TRANSCRIBE: (ModelKind.TRANSCRIBER,),
}
"""The kinds of models that can do a task, the one made for it first; any kind can read prompts."""


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What the files of a model say."""

    architecture: str
    num_layers: int
    context: int
    """Tokens."""
    format: str
    """Of its weights, such as Q4_K_M or bfloat16."""
    has_template: bool
    tool_parser: str
    reasoning_parser: str
    licence: str = ""
    defaults: dict[str, float] = field(default_factory=dict)
    """What its makers recommend for sampling."""
    kind: str = ModelKind.CHAT.value
    """A ModelKind."""


LEAST_CONTEXT = 256
"""A model whose cache has room for fewer tokens is refused, unless it was made for fewer."""
GRAIN = 64
"""Contexts that are recommended are multiples of it, as caches consist of blocks of tokens."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The memory that a core needs for a model as configured, in bytes, found from the headers of the model's files.

    A device (CUDA) holds all but `base_bytes`.
    """

    weights_bytes: int
    """In the forms that compute; a table that the output shares is counted once."""
    mapped_bytes: int
    """The part of `weights_bytes` that stays a mapping of the files. It is 0: every form is a copy."""
    cache_bytes: int
    """The KV cache when it is full. `kv_cache_bytes` of the configuration fixes it, whatever memory is free at load."""
    cache_bytes_per_token: int
    """0 if the model has no cache. Of a short context; a long one takes less where layers have windows."""
    scratch_bytes: int
    """What the longest step needs besides, the logits of the most sequences, and what allocators keep."""
    base_bytes: int
    """A core without a model: interpreter, torch, kernels. Cores share some 150 MiB of it, pages of libraries."""
    context: int
    """Tokens that this configuration serves."""
    max_context: int
    """Tokens that the model was made for."""
    maker_defaults: dict[str, float] = field(default_factory=dict)
    """What its makers recommend for sampling."""
    media_bytes: int = 0
    """What the encoder needs besides for the largest image, video or sound, and for those that it encodes together."""

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.cache_bytes + self.scratch_bytes + self.media_bytes + self.base_bytes

    def refusal(self, budget_bytes: int) -> str:
        """Say why the model does not fit a budget, and what would; "" if it fits."""
        if self.total_bytes <= budget_bytes:
            return ""
        if not self.cache_bytes_per_token:
            return (
                f"{_size(self.total_bytes)} are needed and {_size(budget_bytes)} are there: weights "
                f"{_size(self.weights_bytes)}, steps {_size(self.scratch_bytes)}, the process "
                f"{_size(self.base_bytes)}. Choose a smaller model, or set LIGHTCONE_WEIGHTS to bf16."
            )
        room = budget_bytes - self.total_bytes + self.cache_bytes
        fitting = room // self.cache_bytes_per_token // GRAIN * GRAIN
        needs = (
            f"{_size(self.total_bytes)} are needed and {_size(budget_bytes)} are there: weights "
            f"{_size(self.weights_bytes)}, cache {_size(self.cache_bytes)} for a context of {self.context} tokens, "
            f"steps {_size(self.scratch_bytes)}, the process {_size(self.base_bytes)}."
        )
        if self.media_bytes:
            needs = (
                f"{needs[:-1]}, the largest image, video or sound {_size(self.media_bytes)}, which "
                "LIGHTCONE_MAX_IMAGE_TOKENS and LIGHTCONE_MAX_ENCODER_TOKENS may lower."
            )
        if fitting >= self.context:
            return (
                f"{needs} A cache of {_size(room)} would fit and has room for that context: set kv_cache_bytes to it."
            )
        if fitting >= min(LEAST_CONTEXT, self.max_context):
            return f"{needs} A context of {fitting} tokens would fit: lower max_model_len to it."
        left = max(0, room - self.cache_bytes_per_token * min(LEAST_CONTEXT, self.max_context) + self.weights_bytes)
        return f"{needs} No context would fit: choose a format of fewer bits, whose weights take {_size(left)} at most."


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """A LoRA adapter that an engine has loaded beside its model."""

    name: str
    path: str
    rank: int
    """The largest of its modules."""
    modules: tuple[str, ...]
    """The kinds of modules that it changes, such as q_proj."""
    num_bytes: int
    """The memory of its matrices."""
