import json

import pytest
import torch
from safetensors.torch import save_file

from engine.api.errors import ModelLoadError
from engine.loading.safetensors_file import SafetensorsFolder, read_config


def write_index(path, weight_map):
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth", "x.ckpt"])
def test_a_pickled_checkpoint_is_refused_by_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(ModelLoadError, match=f"{name}: pickled"):
        SafetensorsFolder.open(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match="holds neither"):
        SafetensorsFolder.open(tmp_path)


@pytest.mark.parametrize(
    "contents", [b"", b"\xff" * 16, (1 << 62).to_bytes(8, "little") + b"{}", b"\x02" + bytes(7) + b"{}" + b"x"]
)
def test_a_damaged_file_is_refused_by_name(tmp_path, contents):
    (tmp_path / "model.safetensors").write_bytes(contents)
    with pytest.raises(ModelLoadError, match=r"model\.safetensors"):
        SafetensorsFolder.open(tmp_path)


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "weights.bin", "a\nb"]
)
def test_an_index_that_points_elsewhere_is_refused(tmp_path, name):
    write_index(tmp_path, {"w": name})
    with pytest.raises(ModelLoadError, match="is not the name of a safetensors file in the same folder"):
        SafetensorsFolder.open(tmp_path)


@pytest.mark.parametrize("weight_map", [None, {}, [], {"w": 1}])
def test_an_index_without_a_map_is_refused(tmp_path, weight_map):
    write_index(tmp_path, weight_map)
    with pytest.raises(ModelLoadError, match="weight_map"):
        SafetensorsFolder.open(tmp_path)


def test_a_missing_shard_is_refused_by_name(tmp_path):
    write_index(tmp_path, {"w": "model-1.safetensors"})
    with pytest.raises(ModelLoadError, match=r"model-1\.safetensors"):
        SafetensorsFolder.open(tmp_path)


def test_tensors_are_found_across_shards_and_never_twice(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "one.safetensors")
    save_file({"b": torch.zeros(3)}, tmp_path / "two.safetensors")
    write_index(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"})
    folder = SafetensorsFolder.open(tmp_path)
    assert sorted(folder.names) == ["a", "b"]
    assert torch.equal(folder.tensor("b"), torch.zeros(3))
    save_file({"a": torch.ones(2)}, tmp_path / "two.safetensors")
    with pytest.raises(ModelLoadError, match="tensor 'a' appears twice"):
        SafetensorsFolder.open(tmp_path)


def test_integer_tensors_are_refused_by_name(tmp_path):
    save_file({"a": torch.ones(2, dtype=torch.int32)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match="tensor 'a' has the dtype"):
        SafetensorsFolder.open(tmp_path).tensor("a")


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_config_that_is_no_object_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        read_config(tmp_path)


def test_a_folder_without_config_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match=r"holds no config\.json; a folder of a model has one"):
        read_config(tmp_path)


def test_a_folder_of_gguf_files_is_refused_with_the_file_to_name(tmp_path):
    """It was refused as a config.json that cannot be read."""
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ModelLoadError, match=r"a GGUF file is named itself, as .*m-00001-of-00002\.gguf"):
        read_config(tmp_path)
