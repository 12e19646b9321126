"""`python -m engine.loading.inspection PATH [PROJECTOR]`: check whether a model can be served, by its tables alone.

Prints a description and exits with 0, or prints the problem and exits with 1. `manage.py doctor` runs it in a process
of its own, because torch is large and a model's files are not trusted.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine.api.errors import ModelLoadError
from engine.api.model import ModelKind
from engine.gguf_pair import find_projector, text_file
from engine.loading.checkpoint import FileCheckpoint
from engine.loading.encoder_checkpoint import EncoderCheckpoint, open_encoder
from engine.loading.loader import open_checkpoint
from engine.loading.speech_checkpoint import open_speech
from engine.model_kind import read_purpose
from engine.tokenizers.tokenizer import Tokenizer


def describe_model(path: Path, projector: str = "") -> str:
    """Check the model and return a one-line description. Raises ModelLoadError.

    `projector`: the choice of `EngineConfig`.

    1. Open the files; check headers and tensor tables against the sizes of the files.
    2. Read the config; check that the architecture is supported.
    3. Check that every tensor of the architecture is there in its shape, and no other.
    4. Do the same for the projector of a GGUF file, if it has one.
    5. Build the tokenizer.
    """
    path = text_file(path)
    purpose = read_purpose(path, projector)
    if purpose.speech is not None:
        opened = open_speech(path, purpose.speech)
        Tokenizer.from_path(path)
        num_bytes = sum(file.stat().st_size for file in opened.files)
        return (
            f"{opened.architecture} ({purpose.kind}), {opened.num_layers} layers of transformers, windows of "
            f"{opened.max_position} tokens, {num_bytes / 2**20:,.0f} MiB"
        )
    checkpoint, config, files = open_encoder(path) if purpose.is_encoder else open_checkpoint(path)
    sight = _checked_sight(path, projector) if purpose.takes_images else ""
    tokenizer = Tokenizer.from_path(path)
    num_bytes = sum(file.stat().st_size for file in files)
    weights = f", weights in {checkpoint.format}" if checkpoint.format else ""
    is_chat = purpose.kind is ModelKind.CHAT
    template = "" if tokenizer.chat_template or not is_chat else ", no chat template"
    kind = "" if is_chat else f" ({purpose.kind})"
    layers = "layers" if isinstance(checkpoint, FileCheckpoint | EncoderCheckpoint) else "layers of transformers"
    return (
        f"{config.architecture}{kind}, {config.num_layers} {layers}, context {config.max_position}, "
        f"{num_bytes / 2**20:,.0f} MiB{weights}{template}{sight}"
    )


def _checked_sight(path: Path, projector: str) -> str:
    """Check the projector that goes with a GGUF file, and name it; "" for a folder. Raises ModelLoadError."""
    found = find_projector(path, projector)
    if found is None:
        return ""
    # NOTE: imported here, as it takes seconds and hundreds of MiB that other models save.
    from engine.loading.projector_model import open_pair

    open_pair(found, path)
    return f", images by {found.path.name} ({found.kind.models})"


def main(path: str, projector: str = "") -> int:
    """Inspect the model at `path` and return the exit code. `projector`: the choice of `EngineConfig`."""
    try:
        sys.stdout.write(f"{describe_model(Path(path), projector)}\n")
    except ModelLoadError as error:
        sys.stdout.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
