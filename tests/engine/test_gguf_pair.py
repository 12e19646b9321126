"""Which projector goes with a text model's GGUF file, and what is refused, by file, field and remedy."""

from __future__ import annotations

import shutil

import gguf
import pytest
import torch

from engine.api import ModelLoadError
from engine.config import EngineConfig
from engine.core.memory_need import TRANSFORMERS_BYTES, memory_need
from engine.core.model_description import describe
from engine.execution.media import CACHE_BYTES
from engine.gguf_pair import Projector, find_projector, is_beside, text_file
from engine.loading.inspection import describe_model
from engine.loading.projector_model import pair_model
from engine.model_kind import read_purpose
from tests.engine.gguf_pairs import TEXTS, write_pair, write_projector

REMEDY = "LIGHTCONE_MMPROJ=none"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Folders with a pair of each of two families."""
    found = {}
    for family in ("llava", "gemma3"):
        found[family] = tmp_path_factory.mktemp(family)
        write_pair(found[family], family)
    return found


@pytest.fixture
def folder(pairs, tmp_path):
    """A folder with the text model of LLaVA alone."""
    shutil.copy(pairs["llava"] / "text.gguf", tmp_path / "text.gguf")
    return tmp_path


def sees(path, projector=""):
    return read_purpose(path, projector).takes_images


def refusal(path, projector=""):
    with pytest.raises(ModelLoadError) as refused:
        read_purpose(path, projector)
    return refused.value.message


def put(pairs, folder, name, family="llava"):
    shutil.copy(pairs[family] / "mmproj-text.gguf", folder / name)


def test_a_projector_beside_a_model_is_found_by_its_name(pairs, folder):
    text = folder / "text.gguf"
    assert not sees(text)
    put(pairs, folder, "mmproj-model-f16.gguf")
    assert sees(text)
    assert sees(folder)
    assert not sees(text, "none")
    assert text_file(folder) == text
    assert describe(folder).architecture == "llama"


@pytest.mark.parametrize(
    ("name", "is_model"),
    [
        ("model-imatrix-Q4_K_M.gguf", True),
        ("model-Q4_K_M-imatrix.gguf", True),
        ("model.i1-IQ3_XXS.gguf", True),
        ("model-imatrix-MXFP4.gguf", True),
        ("imatrix.gguf", False),
        ("imatrix_unsloth.gguf", False),
        ("imatrix-Q8_0.gguf", False),
        ("Qwen3-8B-imatrix.gguf", False),
        ("model.f16.imatrix.gguf", False),
        ("Model-Q8_0.imatrix.gguf", False),
        ("mmproj-Q8_0.gguf", False),
    ],
)
def test_only_importance_matrices_and_projectors_are_no_models(name, is_model):
    assert is_beside(name) == (not is_model)


def test_a_model_that_was_made_with_an_importance_matrix_is_found_in_its_folder(pairs, folder):
    put(pairs, folder, "mmproj-F16.gguf")
    made = (folder / "text.gguf").rename(folder / "text-imatrix-Q4_K_M.gguf")
    (folder / "imatrix.gguf").write_bytes(b"GGUF")
    assert text_file(folder) == made
    assert sees(made)


def test_of_two_that_fit_one_is_named(pairs, folder):
    text = folder / "text.gguf"
    put(pairs, folder, "mmproj-F16.gguf")
    put(pairs, folder, "mmproj-BF16.gguf")
    message = refusal(text)
    for words in ("mmproj-BF16.gguf, mmproj-F16.gguf", "LIGHTCONE_MMPROJ", "mmproj-text.gguf"):
        assert words in message
    assert find_projector(text, "mmproj-F16.gguf").path.name == "mmproj-F16.gguf"
    assert refusal(text, "mmproj-other.gguf") == message
    put(pairs, folder, "mmproj-text.gguf")
    assert find_projector(text).path.name == "mmproj-text.gguf"
    assert find_projector(text, "mmproj-BF16.gguf").path.name == "mmproj-BF16.gguf"


def test_a_projector_of_another_model_is_refused_beside_this_one_alone(pairs, folder):
    put(pairs, folder, "mmproj-F16.gguf", "gemma3")
    message = refusal(folder / "text.gguf")
    for words in ("mmproj-F16.gguf", "clip.projector_type 'gemma3'", "architecture gemma3", "is 'llama'", REMEDY):
        assert words in message
    shutil.copy(pairs["gemma3"] / "text.gguf", folder / "gemma.gguf")
    assert not sees(folder / "text.gguf")
    assert sees(folder / "gemma.gguf")
    with pytest.raises(ModelLoadError, match=r"holds 2 GGUF models: name the file of one, such as gemma\.gguf"):
        text_file(folder)
    put(pairs, folder, "mmproj-G16.gguf")
    assert sees(folder / "text.gguf")


@pytest.mark.parametrize("architecture", ["qwen2vl", "qwen3vl"])
def test_a_projector_for_any_text_model_is_none_for_qwen_vl(pairs, folder, architecture):
    """Its images failed one by one: nothing says in which row and column a vector lies."""
    put(pairs, folder, "mmproj-F16.gguf")
    projector = find_projector(folder / "text.gguf")
    metadata = {"general.architecture": architecture, f"{architecture}.embedding_length": projector.width}
    with pytest.raises(ModelLoadError, match="'mlp' goes with text models of the architecture of any but qwen2vl"):
        projector.check(folder / "text.gguf", metadata)


def changed(folder, changes=(), without=(), more=(), name="mmproj-F16.gguf"):
    """Write the projector of LLaVA again, with other numbers and tensors."""
    reader = gguf.GGUFReader(folder / "mmproj-source.gguf")
    writer = gguf.GGUFWriter(folder / name, dict(changes).get("general.architecture", "clip"))
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value, kind = dict(changes).get(field.name, field.contents()), field.types[0]
        if value is not None:
            sub_type = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, value, kind, sub_type)
    for tensor in reader.tensors:
        if tensor.name not in without:
            writer.add_tensor(tensor.name, dict(more).get(tensor.name, tensor.data))
    for tensor, values in dict(more).items():
        if tensor not in {one.name for one in reader.tensors}:
            writer.add_tensor(tensor, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


ONE = torch.ones(32, 32).numpy()


@pytest.mark.parametrize(
    ("changes", "without", "more", "words"),
    [
        ({"general.architecture": "llama"}, (), {}, ("general.architecture must be 'clip'", REMEDY)),
        ({"clip.has_vision_encoder": False}, (), {}, ("clip.has_vision_encoder", REMEDY)),
        ({"clip.projector_type": "resampler"}, (), {}, ("'resampler' cannot be served", "qwen3vl_merger (Qwen3-VL)")),
        ({}, ("mm.2.weight",), {}, ("'mm.2.weight' is missing",)),
        ({}, (), {"mm.2.weight": torch.ones(48, 32).numpy()}, ("vectors of 48 numbers", "embedding_length of 32")),
    ],
)
def test_what_cannot_be_a_projector_of_the_model_is_refused(pairs, folder, changes, without, more, words):
    put(pairs, folder, "mmproj-source.gguf")
    changed(folder, changes, without, more)
    (folder / "mmproj-source.gguf").unlink()
    message = refusal(folder / "text.gguf")
    for word in ("mmproj-F16.gguf", *words):
        assert word in message


@pytest.mark.parametrize(
    ("changes", "without", "more", "words"),
    [
        ({}, ("v.blk.0.ln1.bias",), {}, "tensor 'v.blk.0.ln1.bias' is missing"),
        ({}, (), {"v.blk.0.attn_q.weight": ONE}, "tensor 'v.blk.0.attn_q.weight' must have the shape (16, 16)"),
        ({}, (), {"v.blk.0.strange.weight": ONE}, "1 tensors that its kind of projector does not have"),
        ({"clip.vision.image_size": 35}, (), {}, "tensor 'v.position_embd.weight' must have the shape (26, 16)"),
        ({"clip.vision.block_count": 1 << 20}, (), {}, "block_count must be an integer from 1 to"),
        ({"clip.vision.image_mean": None}, (), {}, "image_mean must be a list"),
        ({"clip.vision.attention.head_count": 0}, (), {}, "attention.head_count must be an integer from 1"),
        ({"clip.vision.attention.head_count": 3}, (), {}, "the image encoder cannot be loaded"),
        ({}, (), {"mm.2.bias": torch.full((32,), torch.nan).numpy()}, "holds numbers that are not finite"),
    ],
)
def test_what_a_projector_lacks_is_said_as_it_loads(pairs, folder, changes, without, more, words):
    put(pairs, folder, "mmproj-source.gguf")
    changed(folder, changes, without, more)
    with pytest.raises(ModelLoadError) as refused:
        pair_model(Projector.read(folder / "mmproj-F16.gguf"), folder / "text.gguf", torch.float32)
    assert "mmproj-F16.gguf" in refused.value.message
    assert words in refused.value.message


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_projector_that_ends_early_is_refused(pairs, folder, share):
    content = (pairs["llava"] / "mmproj-text.gguf").read_bytes()
    (folder / "mmproj-F16.gguf").write_bytes(content[: int(len(content) * share)])

    def load():
        read_purpose(folder)
        pair_model(Projector.read(folder / "mmproj-F16.gguf"), folder / "text.gguf", torch.float32)

    with pytest.raises(ModelLoadError, match=r"mmproj-F16\.gguf"):
        load()


def test_a_projector_counts_to_the_memory_of_its_model(pairs):
    without = memory_need(EngineConfig(pairs["llava"], "m", "none", weights="float32", kv_cache_bytes=4 << 20))
    found = memory_need(EngineConfig(pairs["llava"], "m", weights="float32", kv_cache_bytes=4 << 20))
    (tensors,) = (gguf.GGUFReader(pairs["llava"] / "mmproj-text.gguf").tensors,)
    assert found.weights_bytes - without.weights_bytes == sum(int(tensor.n_elements) * 4 for tensor in tensors)
    assert found.scratch_bytes - without.scratch_bytes == CACHE_BYTES
    assert found.base_bytes - without.base_bytes == pytest.approx(TRANSFORMERS_BYTES, abs=50 << 20)


@pytest.mark.parametrize("family", TEXTS)
def test_the_largest_image_of_a_pair_counts_to_its_memory(tmp_path, family):
    write_pair(tmp_path, family)
    without, found = (
        memory_need(EngineConfig(tmp_path, "m", projector, weights="float32", kv_cache_bytes=4 << 20)).media_bytes
        for projector in ("none", "")
    )
    assert without == 0 < found


def test_a_check_of_a_model_names_its_projector_and_checks_its_tensors(pairs, folder):
    put(pairs, folder, "mmproj-source.gguf")
    assert ", images by mmproj-source.gguf (LLaVA 1.5 and 1.6)" in describe_model(folder)
    assert "images by" not in describe_model(folder, "none")
    changed(folder, without=("v.blk.0.ln1.bias",), name="mmproj-text.gguf")
    with pytest.raises(ModelLoadError, match=r"mmproj-text\.gguf: tensor 'v\.blk\.0\.ln1\.bias' is missing"):
        describe_model(folder)


def test_old_names_of_the_feed_forward_are_read_by_their_shapes(tmp_path):
    model, processor = write_pair(tmp_path, "llava")
    new, old = tmp_path / "mmproj-text.gguf", tmp_path / "mmproj-old.gguf"
    write_projector(old, model, processor, "llava", is_old=True)
    read = (pair_model(Projector.read(file), tmp_path / "text.gguf", torch.float32) for file in (new, old))
    states = [made.state_dict() for made in read]
    names = [name for name in states[0] if "vision_tower" in name or "projector" in name]
    assert names
    assert all(torch.equal(states[0][name], states[1][name]) for name in names)
    assert "fc1" in " ".join(names)
