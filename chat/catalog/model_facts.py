"""What lists of models say of a model: its files, as the store's manifest or the files themselves describe them.

Heads of files are read, never weights, and only once while the files stay as they are. A file that cannot be read, as
one of another machine, leaves the facts empty. Call them in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from django.conf import settings

from chat.catalog.fingerprint import FileState, file_states
from chat.catalog.stored_models import stored_manifest
from chat.model_store.folder import ModelStore
from chat.model_store.manifest import Manifest
from engine.api import EngineError
from engine.gguf_pair import text_file

logger = logging.getLogger(__name__)

UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error)
"""Errors of files that are not what they seem."""
GGUF, SAFETENSORS = "gguf", "safetensors"
MAX_JSON_BYTES = 64 * 2**20
"""Of config.json, of a template and of the head of a safetensors file."""
THINKS = ("enable_thinking", "</think>", "reasoning_content")
"""Words in templates of models that think."""
ABILITIES = {"reranker": ["rerank"], "transcriber": ["transcription"]}
"""What models of other kinds than chat can do, where that has another name."""
UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the files of a model say; empty where they do not say it."""

    num_bytes: int = 0
    digest: str = ""
    """64 hexadecimal digits that change with the files."""
    modified_at: datetime = datetime.fromtimestamp(0, UTC)
    format: str = ""
    architecture: str = ""
    num_parameters: int = 0
    quantization: str = ""
    context: int = 0
    """Tokens that the model was made for."""
    num_layers: int = 0
    width: int = 0
    """Of its hidden states."""
    template: str = ""
    licence: str = ""
    kind: str = "chat"
    """What the model is for, as the store says."""
    has_tools: bool = False
    thinks: bool = False
    sees: bool = False
    hears: bool = False

    def reported(self, kind: str, modalities: Collection[str]) -> ModelFacts:
        """Return the facts with what a worker says: what the model is for, if it says so, and what it sees and hears.

        The store knows what its own models are for.
        """
        return replace(self, kind=kind or self.kind, sees="image" in modalities, hears="audio" in modalities)

    @property
    def capabilities(self) -> list[str]:
        """Return what the model can do, in Ollama's words."""
        if self.kind != "chat":
            return ["embedding"] if self.kind == "embedding" else []
        marks = {"vision": self.sees, "audio": self.hears, "tools": self.has_tools, "thinking": self.thinks}
        return ["completion", *(word for word, is_true in marks.items() if is_true)]

    @property
    def abilities(self) -> list[str]:
        """Return what the model can do, in the words of `GET /v1/models`."""
        if self.kind != "chat":
            return ABILITIES.get(self.kind, [self.kind])
        can = ["chat", "completion", "structured_output", "embedding"]
        marks = {"vision": self.sees, "audio": self.hears, "tools": self.has_tools, "reasoning": self.thinks}
        return [*can, *(word for word, is_true in marks.items() if is_true)]

    @property
    def parameter_size(self) -> str:
        """Return the number of parameters as people say it, such as 1.54B; empty if it is not known."""
        for unit, letter in UNITS:
            if self.num_parameters >= unit:
                return f"{self.num_parameters / unit:.4g}{letter}"
        return ""


def model_facts(path: str) -> ModelFacts:
    """Return the facts of the model at `path`, a GGUF file or a folder. Never raises for what is in its files."""
    place = Path(path)
    return _facts(place, file_states(place))


@lru_cache(maxsize=256)
def _facts(path: Path, states: tuple[FileState, ...]) -> ModelFacts:
    """Read the facts of files in these states."""
    if not states:
        return ModelFacts()
    try:
        path = text_file(path)
        read = _gguf_facts(path) if path.suffix.lower() == ".gguf" else _folder_facts(path)
    except (*UNREADABLE, EngineError) as error:
        logger.warning("The files of a model do not say what it is: %s", error)
        read = {}
    manifest = stored_manifest(store=ModelStore(settings.LIGHTCONE_MODEL_STORE), path=str(path))
    if manifest is not None:
        read = _manifest_facts(manifest, read)
    shown = hashlib.sha256(json.dumps(states).encode()).hexdigest()
    newest = datetime.fromtimestamp(max(changed for _, _, changed in states) / 1e9, UTC)
    num_bytes = sum(size for _, size, _ in states)
    facts: dict[str, Any] = {"num_bytes": num_bytes, "digest": shown, "modified_at": newest, **read}
    return ModelFacts(**facts)


def _manifest_facts(manifest: Manifest, read: dict[str, Any]) -> dict[str, Any]:
    """Return what the store knows, with what was `read` from the files.

    Calls have a format whatever the template does with tools, so a template without them decides.
    """
    said = manifest.description
    known = {"architecture": said.architecture, "format": GGUF if manifest.model_file else SAFETENSORS}
    return {
        **known,
        **read,
        "digest": hashlib.sha256(manifest.dump().encode()).hexdigest(),
        "modified_at": datetime.fromisoformat(manifest.created_at),
        "num_bytes": manifest.num_bytes,
        "quantization": said.format,
        "context": said.context,
        "num_layers": said.num_layers,
        "licence": said.licence,
        "kind": manifest.kind,
        "has_tools": said.tool_parser != "none" and read.get("has_tools", True),
        "thinks": said.reasoning_parser != "none",
    }


def _gguf_facts(path: Path) -> dict[str, Any]:
    # NOTE: imported here, as numpy and gguf are no part of a web process until somebody asks.
    from gguf import LlamaFileType

    from engine.gguf_file import GgufFile

    file = GgufFile.open(path)
    said = file.metadata
    architecture = str(said.get("general.architecture", ""))[:100]
    number = said.get("general.file_type")
    types = {int(kind): kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in LlamaFileType}
    return {
        "format": GGUF,
        "architecture": architecture,
        "num_parameters": sum(prod(tensor.shape) for tensor in file.tensors.values()),
        "quantization": types.get(number, "") if isinstance(number, int) else "",
        "context": _integer(said.get(f"{architecture}.context_length")),
        "num_layers": _integer(said.get(f"{architecture}.block_count")),
        "width": _integer(said.get(f"{architecture}.embedding_length")),
        "licence": str(said.get("general.license", ""))[:100],
        **_template_facts(str(said.get("tokenizer.chat_template", ""))),
    }


def _folder_facts(path: Path) -> dict[str, Any]:
    config = _json(path / "config.json")
    if config.get("model_type") == "ultravox":
        # NOTE: imported here, as a library of tokenizers comes with it.
        from engine import ultravox_folder

        with contextlib.suppress(EngineError):  # what a part says that is not there is not known
            config = ultravox_folder.described(path, config)
    inner = config.get("text_config")
    described = inner if isinstance(inner, dict) else config
    quantized = config.get("quantization_config")
    method = quantized.get("quant_method", "") if isinstance(quantized, dict) else ""
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "")
    return {
        "format": SAFETENSORS,
        "architecture": str(config.get("model_type", ""))[:100],
        "num_parameters": sum(map(_num_parameters, sorted(path.glob("*.safetensors")))),
        "quantization": str(method or dtype)[:100],
        "context": _integer(described.get("max_position_embeddings")),
        "num_layers": _integer(described.get("num_hidden_layers")),
        "width": _integer(described.get("hidden_size")),
        **_template_facts(_folder_template(path)),
    }


def _folder_template(path: Path) -> str:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_bytes()[:MAX_JSON_BYTES].decode(errors="replace")
    tokenizer = path / "tokenizer_config.json"
    template = _json(tokenizer).get("chat_template") if tokenizer.is_file() else None
    if isinstance(template, list):
        template = next((one.get("template") for one in template if one.get("name") == "default"), None)
    return template if isinstance(template, str) else ""


def _template_facts(template: str) -> dict[str, Any]:
    return {
        "template": template,
        "has_tools": "tools" in template,
        "thinks": any(word in template for word in THINKS),
    }


def _num_parameters(file: Path) -> int:
    """Return the number of weights of a safetensors file, by its head."""
    with file.open("rb") as source:
        (num_bytes,) = struct.unpack("<Q", source.read(8))
        if num_bytes > MAX_JSON_BYTES:
            raise ValueError(f"the head of {file.name} has {num_bytes} bytes")
        head = json.loads(source.read(num_bytes))
    shapes: Iterable[Any] = (entry["shape"] for name, entry in head.items() if name != "__metadata__")
    return sum(prod(shape) for shape in shapes)


def _json(file: Path) -> dict[str, Any]:
    if file.stat().st_size > MAX_JSON_BYTES:
        raise ValueError(f"{file.name} has more than {MAX_JSON_BYTES} bytes")
    value = json.loads(file.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{file.name} is no JSON object")
    return value


def _integer(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
