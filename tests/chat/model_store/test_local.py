"""Models that are on the machine already: files, folders, the caches of other programs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore
from chat.model_store.local import OLLAMA_MODEL, OLLAMA_PROJECTOR, import_note, model_import, models_at
from engine.api import ModelDescription
from engine.model_kind import read_purpose
from tests.engine.gguf_pairs import write_pair


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def test_all_parts_of_a_split_file_are_one_model(tmp_path: Path, store: ModelStore) -> None:
    write(tmp_path, "big-Q4-00001-of-00002.gguf", "big-Q4-00002-of-00002.gguf", "big-Q4-x-00001-of-00002.gguf")
    [model] = models_at(tmp_path / "big-Q4-00001-of-00002.gguf")
    made = model_import(store, model)
    assert (made.name, made.model_file) == ("big-Q4", "big-Q4-00001-of-00002.gguf")
    assert [file.path for file in made.files] == ["big-Q4-00001-of-00002.gguf", "big-Q4-00002-of-00002.gguf"]


def test_a_folder_brings_what_is_served_and_no_code(tmp_path: Path, store: ModelStore) -> None:
    folder = tmp_path / "Tiny-1B"
    write(
        folder, "config.json", "model.safetensors", "tokenizer.json", "modeling.py", "pytorch_model.bin", "LICENSE.txt"
    )
    [model] = models_at(folder)
    made = model_import(store, model)
    assert (made.name, made.model_file) == ("Tiny-1B", "")
    assert [file.path for file in made.files] == ["LICENSE.txt", "config.json", "model.safetensors", "tokenizer.json"]
    assert store.model_path("Tiny-1B") == store.root / "Tiny-1B" / "files"


def test_the_modules_of_an_embedding_model_come_with_it_and_its_kind_is_kept(
    tmp_path: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = ModelDescription("BertModel", 6, 256, "float32", False, "none", "none", kind="embedding")
    monkeypatch.setattr("chat.model_store.local.description_of", lambda path: described)
    folder = tmp_path / "MiniLM"
    modules = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")
    inner = ("1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors")
    write(folder, "config.json", "model.safetensors", *modules, *inner)
    write(folder, "onnx/config.json", "2_Dense/pytorch_model.bin", "2_Dense/deep/config.json", "data_config.json")
    [model] = models_at(folder)
    made = model_import(store, model)
    wanted = {"config.json", "model.safetensors", *modules, *inner}
    assert ({file.path for file in made.files}, made.kind) == (wanted, "embedding")
    assert (store.model_path("MiniLM") / "2_Dense" / "model.safetensors").is_file()
    assert store.get("MiniLM").kind == store.copy("MiniLM", "other").kind == "embedding"


def test_the_adapter_by_which_a_model_sees_comes_with_it(tmp_path: Path) -> None:
    files = ("config.json", "model.safetensors", "vision-lora/adapter_config.json")
    write(tmp_path, *files, "vision-lora/adapter_model.safetensors", "vision-lora/README.md")
    write(tmp_path, "speech-lora/adapter_config.json", "speech-lora/adapter_model.safetensors")
    [model] = models_at(tmp_path)
    assert {path for path, _ in model.files} == {*files, "vision-lora/adapter_model.safetensors"}


def test_a_folder_of_several_files_is_several_models_without_projectors(tmp_path: Path) -> None:
    write(tmp_path, "a-Q4.gguf", "a-Q8.gguf", "mmproj-a.gguf")
    assert [model.name for model in models_at(tmp_path)] == ["a-Q4", "a-Q8"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a text model in GGUF with its projector beside it."""
    folder = tmp_path_factory.mktemp("pair")
    write_pair(folder, "llava")
    return folder


def test_a_projector_comes_with_the_model_that_it_fits(
    tmp_path: Path, store: ModelStore, pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = ModelDescription("llama", 2, 64, "F32", True, "none", "none")
    monkeypatch.setattr("chat.model_store.local.description_of", lambda path: described)
    [model] = models_at(pair / "text.gguf")
    made = model_import(store, model)
    assert [file.path for file in made.files] == ["mmproj-text.gguf", "text.gguf"]
    assert (made.model_file, read_purpose(store.model_path("text")).takes_images) == ("text.gguf", True)
    write(tmp_path, "mmproj-broken.gguf")
    shutil.copy(pair / "text.gguf", tmp_path / "alone.gguf")
    [model] = models_at(tmp_path / "alone.gguf")
    assert [name for name, _ in model.files] == ["alone.gguf"]


def test_of_several_projectors_an_import_takes_one_as_a_pull_does(
    tmp_path: Path, store: ModelStore, pair: Path
) -> None:
    shutil.copy(pair / "text.gguf", tmp_path / "model.gguf")
    for name in ("mmproj-F32.gguf", "mmproj-F16.gguf", "mmproj-Q8_0.gguf"):
        shutil.copy(pair / "mmproj-text.gguf", tmp_path / name)
    for path in (tmp_path, tmp_path / "model.gguf"):
        [model] = models_at(path)
        assert [name for name, _ in model.files] == ["model.gguf", "mmproj-F16.gguf"]
        assert model.note == ""


def test_an_import_says_why_a_projector_stays_behind(
    tmp_path: Path, store: ModelStore, pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = ModelDescription("llama", 2, 64, "F32", True, "none", "none")
    monkeypatch.setattr("chat.model_store.local.description_of", lambda path: described)
    shutil.copy(pair / "text.gguf", tmp_path / "model.gguf")
    write(tmp_path, "mmproj-broken.gguf")
    [model] = models_at(tmp_path)
    sentence = import_note(model, model_import(store, model))
    assert sentence.startswith("model reads text alone, as no projector beside it could be taken: ")
    assert "mmproj-broken.gguf" in sentence


def test_a_projector_of_ollama_is_left_out_if_it_does_not_fit(
    tmp_path: Path, store: ModelStore, pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = ModelDescription("llama", 2, 64, "F32", True, "none", "none")
    monkeypatch.setattr("chat.model_store.local.description_of", lambda path: described)
    (tmp_path / "blobs").mkdir()
    for name, projector in (("good", (pair / "mmproj-text.gguf").read_bytes()), ("bad", b"GGUF")):
        layers = []
        for kind, content in ((OLLAMA_MODEL, (pair / "text.gguf").read_bytes()), (OLLAMA_PROJECTOR, projector)):
            digest = hashlib.sha256(content).hexdigest()
            (tmp_path / "blobs" / f"sha256-{digest}").write_bytes(content)
            layers.append({"mediaType": kind, "digest": f"sha256:{digest}"})
        write(tmp_path, f"manifests/registry.ollama.ai/library/{name}/1b")
        (tmp_path / f"manifests/registry.ollama.ai/library/{name}/1b").write_text(json.dumps({"layers": layers}))
    for model, count in zip(models_at(tmp_path), (1, 2), strict=True):
        made = model_import(store, model)
        assert len(made.files) == count
        left_out = f"{model.name} reads text alone: mmproj-model.gguf does not fit it and was left out."
        assert import_note(model, made) == (left_out if count == 1 else "")
        assert read_purpose(store.model_path(model.name)).takes_images == (count == 2)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Write a Hugging Face cache: one repository with two snapshots, links into blobs; an empty one."""
    root = tmp_path / "hub"
    repository = root / "models--org--Tiny"
    write(repository, "blobs/1", "blobs/2", "refs/main")
    (repository / "refs" / "main").write_text("c1")
    for commit in ("c1", "c2"):
        (repository / "snapshots" / commit).mkdir(parents=True)
        for name, blob in (("config.json", "1"), ("model.safetensors", "2")):
            os.symlink(f"../../blobs/{blob}", repository / "snapshots" / commit / name)
    (root / "models--org--Empty" / "snapshots").mkdir(parents=True)
    return root


def test_a_cache_of_hugging_face_is_read_at_the_commit_of_main(cache: Path, store: ModelStore) -> None:
    for path in (cache, cache / "models--org--Tiny"):
        [model] = models_at(path)
        assert (model.name, model.source.place, model.source.revision) == ("Tiny", "org/Tiny", "c1")
    made = model_import(store, model)
    kept = store.model_path("Tiny") / "model.safetensors"
    assert not kept.is_symlink()
    assert os.path.samefile(kept, cache / "models--org--Tiny" / "blobs" / "2")
    assert made.source.kind == "hub"


def test_a_folder_of_ollama_is_read_by_its_manifests(tmp_path: Path, store: ModelStore) -> None:
    digest = hashlib.sha256(b"weights").hexdigest()
    layers = [{"mediaType": "other", "digest": "sha256:aa"}, {"mediaType": OLLAMA_MODEL, "digest": f"sha256:{digest}"}]
    for place in ("registry.ollama.ai/library/llama3.2/1b", "registry.ollama.ai/me/tuned/latest"):
        write(tmp_path, f"manifests/{place}")
        (tmp_path / "manifests" / place).write_text(json.dumps({"layers": layers}))
    for place, text in (("bad", "{"), ("worse", '{"layers": [3, {"mediaType": null}]}')):
        write(tmp_path, f"manifests/registry.ollama.ai/library/{place}/1b")
        (tmp_path / f"manifests/registry.ollama.ai/library/{place}/1b").write_text(text)
    blob = tmp_path / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir()
    blob.write_bytes(b"weights")
    found = models_at(tmp_path)
    assert [model.name for model in found] == ["llama3.2:1b", "me/tuned:latest"]
    made = model_import(store, found[0])
    assert (made.source.kind, made.source.revision) == ("ollama", digest)
    assert store.model_path("llama3.2:1b").read_bytes() == b"weights"
    blob.write_bytes(b"weighty")
    with pytest.raises(StoreError, match=rf"model\.gguf is damaged: its hash is .*, not {digest}"):
        model_import(store, found[1])


@pytest.mark.parametrize(("name", "count"), [("a[1]-00001-of-00002.gguf", 1), ("b-00001-of-00003.GGUF", 1)])
def test_a_split_file_without_all_its_parts_is_refused(tmp_path: Path, name: str, count: int) -> None:
    write(tmp_path, name)
    with pytest.raises(StoreError, match=rf"holds {count} of the \d parts of"):
        models_at(tmp_path / name)


def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "secret", "model/config.json", "model/model.safetensors")
    (tmp_path / "model" / "LICENSE").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match=r"LICENSE is a link to .*secret, outside .*: put the file itself there"):
        models_at(tmp_path / "model")


def test_mistrals_own_layout_is_taken_only_alone(tmp_path: Path) -> None:
    write(tmp_path, "one/config.json", "one/model.safetensors", "one/consolidated.safetensors")
    write(tmp_path, "two/config.json", "two/consolidated.safetensors")
    for folder, name in (("one", "model.safetensors"), ("two", "consolidated.safetensors")):
        [model] = models_at(tmp_path / folder)
        assert [path for path, _ in model.files] == ["config.json", name]


def test_a_place_without_a_model_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "notes.txt", "empty/readme")
    for path in (tmp_path / "notes.txt", tmp_path / "empty", tmp_path / "absent"):
        with pytest.raises(StoreError, match="There is no model at .* It may be a GGUF file, a folder"):
            models_at(path)
