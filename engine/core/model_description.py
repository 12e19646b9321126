"""`python -m engine.core.model_description PATH`: say what a model is, as JSON, without reading its weights.

Prints an object with the fields of `ModelDescription` and exits with 0; or prints the problem and exits with 1. The
model store runs it in a process of its own, as a model's files are not trusted and torch is large.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

from gguf import LlamaFileType

from engine.api.errors import ModelLoadError
from engine.api.model import ModelDescription, ModelKind
from engine.gguf_file import GgufFile
from engine.gguf_pair import NONE, text_file
from engine.loading.encoder_checkpoint import open_encoder
from engine.loading.loader import open_checkpoint
from engine.loading.maker_defaults import maker_defaults
from engine.loading.safetensors_file import read_config
from engine.loading.speech_checkpoint import open_speech
from engine.model_kind import SpeechPurpose, read_purpose
from engine.outputs.parsing import OutputParsing
from engine.tokenizers.tokenizer import Tokenizer

README_BYTES = 1 << 16
LICENCE_CHARS = 100
LICENCE = re.compile(r"^license:\s*(\S[^\n]*)", re.MULTILINE)
"""In the front matter of a model card (README.md)."""


def describe(path: Path) -> ModelDescription:
    """Check the tables of a model's files and its tokenizer, and describe it. Raises ModelLoadError."""
    path = text_file(path)
    purpose = read_purpose(path, NONE)  # what a projector beside it is, loading says
    if purpose.speech is not None:
        return _transcriber(path, purpose.speech)
    checkpoint, config, _ = open_encoder(path) if purpose.is_encoder else open_checkpoint(path)
    tokenizer = Tokenizer.from_path(path)
    parsing = OutputParsing(tokenizer, "auto", "auto")
    is_folder = path.is_dir()
    return ModelDescription(
        architecture=config.architecture,
        num_layers=config.num_layers,
        context=min(config.max_position, purpose.max_tokens or config.max_position),
        format=(checkpoint.format or _dtype(path)) if is_folder else _file_type(path),
        has_template=bool(tokenizer.chat_template),
        tool_parser=parsing.tool_parser,
        reasoning_parser=parsing.reasoning_parser,
        licence=_card_licence(path) if is_folder else _gguf_licence(path),
        defaults=maker_defaults(path),
        kind=str(purpose.kind),
    )


def _transcriber(path: Path, speech: SpeechPurpose) -> ModelDescription:
    opened = open_speech(path, speech)
    Tokenizer.from_path(path)
    return ModelDescription(
        architecture=opened.architecture,
        num_layers=opened.num_layers,
        context=opened.max_position,
        format=_dtype(path),
        has_template=False,
        tool_parser="none",
        reasoning_parser="none",
        licence=_card_licence(path),
        kind=str(ModelKind.TRANSCRIBER),
    )


def _file_type(path: Path) -> str:
    """Return the name that llama.cpp has for what a file mostly holds, such as Q4_K_M, else its commonest type."""
    number = GgufFile.read_metadata(path).get("general.file_type")
    if isinstance(number, int) and number in set(LlamaFileType):
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    types = [tensor.type for tensor in GgufFile.open(path).tensors.values()]
    return max(set(types), key=types.count)


def _dtype(path: Path) -> str:
    values = read_config(path)
    return str(values.get("dtype") or values.get("torch_dtype") or "safetensors").removeprefix("torch.")


def _gguf_licence(path: Path) -> str:
    return str(GgufFile.read_metadata(path).get("general.license", ""))[:LICENCE_CHARS]


def _card_licence(path: Path) -> str:
    try:
        with (path / "README.md").open("rb") as file:
            card = file.read(README_BYTES).decode(errors="replace")
    except OSError:
        return ""
    found = LICENCE.search(card) if card.startswith("---") else None
    return found[1].strip()[:LICENCE_CHARS] if found else ""


def main(path: str) -> int:
    """Describe the model at `path` and return the exit code."""
    try:
        sys.stdout.write(json.dumps(dataclasses.asdict(describe(Path(path)))) + "\n")
    except ModelLoadError as error:
        sys.stdout.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
