"""Paths of models in GGUF files: a file, or a folder with one text model and its projector."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ValidationError

from chat.catalog.fingerprint import system_fingerprint
from chat.catalog.services import model_path_check


def test_a_folder_of_one_model_and_its_projector_is_a_path_of_a_model(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="is no Hugging Face model"):
        model_path_check(path=str(tmp_path))
    (tmp_path / "mmproj-F16.gguf").write_bytes(b"GGUF")
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    model_path_check(path=str(tmp_path))
    model_path_check(path=str(tmp_path / "a.gguf"))
    (tmp_path / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValidationError, match="holds several GGUF models: write the path of one file"):
        model_path_check(path=str(tmp_path))
    (tmp_path / "b.gguf").unlink()
    (tmp_path / "a.gguf").write_bytes(b"text")
    with pytest.raises(ValidationError, match="is not a GGUF file"):
        model_path_check(path=str(tmp_path))


def test_a_projector_is_part_of_the_fingerprint_of_a_model(tmp_path: Path) -> None:
    model = tmp_path / "a.gguf"
    model.write_bytes(b"GGUF")
    alone = system_fingerprint(path=str(model))
    (tmp_path / "mmproj-F16.gguf").write_bytes(b"GGUF")
    with_projector = system_fingerprint(path=str(model))
    (tmp_path / "mmproj-F16.gguf").write_bytes(b"GGUF!")
    assert len({alone, with_projector, system_fingerprint(path=str(model))}) == 3
