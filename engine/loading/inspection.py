"""`python -m engine.loading.inspection PATH`: whether a model's files can be served, found out without reading their weights.

Writes what the model is and exits with 0, or what is wrong and exits with 1. Run by `manage.py doctor`, in a process of its own: torch is
large, and a model's files are not trusted.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine.api.errors import ModelLoadError
from engine.loading.loader import open_checkpoint
from engine.models.decoder import decoder_tensors
from engine.tokenizers.tokenizer import Tokenizer


def model_described(path: Path) -> str:
    """Say what the model is. Raises ModelLoadError.

    1. Open the files: headers, and tables of tensors against the sizes of the files.
    2. Read the config: is the architecture one that can be served?
    3. Look for every tensor of the architecture, in its shape, and for none besides.
    4. Make the tokenizer.
    """
    checkpoint, config, files = open_checkpoint(path)
    for name, shape in decoder_tensors(config):
        if name != "frequency_factors" or checkpoint.has(name):
            checkpoint.check(name, shape)
    checkpoint.refuse_unused()
    tokenizer = Tokenizer.from_path(path)
    num_bytes = sum(file.stat().st_size for file in files)
    template = "" if tokenizer.chat_template else ", no chat template"
    return f"{config.architecture}, {config.num_layers} layers, context {config.max_position}, {num_bytes / 2**20:,.0f} MiB{template}"


def main(path: str) -> int:
    """Look at the model at `path`."""
    try:
        sys.stdout.write(f"{model_described(Path(path))}\n")
    except ModelLoadError as error:
        sys.stdout.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
