"""Inspection for the doctor finds every fault that loading would refuse, without reading weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from chat.catalog.model_choice import model_choice
from engine.api.errors import ModelLoadError
from engine.loading.inspection import describe_model, main
from tests.engine.loading.gguf_writing import STRING, GgufContents, string
from tests.engine.models.test_decoder import VARIANTS, small_model
from tests.engine.tiny_tokenizer import write_tokenizer

DEFAULT = model_choice(path="", name="").path


def written(folder: Path, variant: str) -> Path:
    small_model(*VARIANTS[variant]).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.mark.parametrize("variant", VARIANTS)
def test_inspection_requires_exactly_the_tensors_that_loading_reads(tmp_path: Path, variant: str) -> None:
    folder = written(tmp_path, variant)
    assert "layers, context" in describe_model(folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for name in tensors:
        save_file({other: values for other, values in tensors.items() if other != name}, file)
        with pytest.raises(ModelLoadError, match=f"tensor '{name}' is missing"):
            describe_model(folder)
    name = min(tensors)
    save_file(tensors | {name: torch.ones(3)}, file)
    with pytest.raises(ModelLoadError, match=rf"tensor '{name}' must have the shape .*, got \(3,\)"):
        describe_model(folder)


def test_the_default_model_is_described_and_a_truncated_copy_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(str(DEFAULT)) == 0
    assert capsys.readouterr().out == "llama, 30 layers, context 8192, 94 MiB\n"
    half = tmp_path / "half.gguf"
    half.write_bytes(DEFAULT.read_bytes()[: DEFAULT.stat().st_size // 2])
    assert main(str(half)) == 1
    assert "it is truncated or damaged" in capsys.readouterr().out


def test_an_architecture_that_cannot_be_served_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The doctor passed a Gemma file that the server could never load."""
    path = GgufContents(metadata=[("general.architecture", STRING, string("mamba"))]).write(tmp_path / "m.gguf")
    assert main(str(path)) == 1
    assert "the architecture 'mamba' cannot be served; supported are " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["llama3.2", "org/model.gguf"])
def test_a_missing_model_is_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(str(tmp_path / name)) == 1
    assert "there is no such file or folder" in capsys.readouterr().out


def test_a_model_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, next(iter(VARIANTS)))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json"):
        describe_model(folder)
