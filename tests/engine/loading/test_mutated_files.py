"""Files with errors anywhere: a model loads and computes a step, or is refused in one clear line that names it.

tests/engine/loading/test_hostile_files.py has lies in single places, and what each is refused with.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from engine.api.errors import MAX_LOAD_ERROR, ModelLoadError
from engine.gguf_file import GgufFile
from engine.loading.loader import load_model
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.loading.gguf_models import write_gguf
from tests.engine.loading.test_hostile_files import CONFIG, TENSORS, write_folder
from tests.engine.models.test_decoder import LONGROPE, VARIANTS, run, small_model
from tests.engine.models.test_transformers_backend import FOREIGN
from tests.engine.tiny_tokenizer import tiny_tokenizer
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore::UserWarning:transformers")
GGUF = {"llama": "llama with grouped queries", "gemma3": "gemma3", "gemma4": "gemma4", "phi3": "phi3"}
FOLDERS = {
    "llama": VARIANTS["llama with llama3 scaling"],
    "gemma3": VARIANTS["gemma3"],
    "gemma4": VARIANTS["gemma4"],
    "granite": VARIANTS["granite"],
    "phi3": ("Phi3", {"pad_token_id": 0, "rope_parameters": LONGROPE}),
    "gpt neox": FOREIGN["gpt neox, stacked"],
    "gpt oss": FOREIGN["gpt oss, sinks and windows"],
}
HUGE = [1 << 16, 1 << 24, (1 << 32) - 1, 1 << 62, (1 << 64) - 1]


class Edit(NamedTuple):
    """A change of some bytes: at `place`, a share of those that may change, `removed` of them make room for `put`."""

    place: float
    removed: int
    put: bytes

    def apply(self, raw: bytes, first: int, end: int) -> bytes:
        at = first + int(self.place * max(min(end, len(raw)) - first, 0))
        return raw[:at] + self.put + raw[at + self.removed :]


numbers = st.sampled_from([0, 1, *HUGE])
edits = st.lists(
    st.one_of(
        st.builds(Edit, st.floats(0, 1), st.just(1), st.binary(min_size=1, max_size=1)),
        st.builds(Edit, st.floats(0, 1), st.just(4), numbers.map(lambda n: (n & 0xFFFFFFFF).to_bytes(4, "little"))),
        st.builds(Edit, st.floats(0, 1), st.just(8), numbers.map(lambda n: n.to_bytes(8, "little"))),
        st.builds(Edit, st.floats(0, 1), st.sampled_from([0, 1, 8, 1 << 30]), st.binary(max_size=8)),
    ),
    min_size=1,
    max_size=3,
)
anything: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, 0, 1, 3, -1, *HUGE, 1 << 70, 1.5, -0.5, 0.0, 1e308, 1e-300, float("nan"), float("inf")]
    + ["", "x", "yarn", "x" * 5000, [], [1], [None], ["x"] * 3, [[1]], {}, {"a": 1}, {"name": ["x"]}]
    + [["full_attention"], ["full_attention"] * 3, ["sliding_attention"] * 7, [1.5] * 8]
    + [{"rope_type": kind} for kind in (None, "yarn", "llama3", "dynamic", "longrope", "x")]
    + [{"rope_type": "yarn", "factor": factor} for factor in ("x", -1, 0, 1e308, [1])]
    + [{"rope_type": "longrope", "short_factor": [1.0] * count, "long_factor": [2.0] * 8} for count in (0, 1, 8)]
    + [{"rope_theta": theta} for theta in ("x", -5, 0, 1 << 70)]
    + [{"full_attention": {"rope_type": "linear", "factor": 1e-300}}, {"partial_rotary_factor": 1 << 24}]
)


def is_refused(work: Callable[[], object], named: str) -> bool:
    """Return True for a refusal, False for no error; any other one fails the test."""
    try:
        work()
    except ModelLoadError as refusal:
        message = refusal.message
    else:
        return False
    assert named in message
    assert len(message) < 1000
    assert "\n" not in message
    return True


def compute(path: Path) -> None:
    model = load_model(path, weights="float32")
    if model.max_model_len >= 6:
        run(model, [torch.arange(6)], [])


@pytest.fixture(scope="module")
def gguf_files(tmp_path_factory) -> dict[str, tuple[bytes, int]]:
    """The contents of small models, and how many bytes of each are metadata and the table of tensors."""
    pytest.importorskip("gguf")
    folder, found = tmp_path_factory.mktemp("gguf"), {}
    for architecture, name in GGUF.items():
        path = write_gguf(folder / f"{architecture}.gguf", small_model(*VARIANTS[name]), architecture)
        raw = path.read_bytes()
        found[architecture] = raw, len(raw) - sum(tensor.data.nbytes for tensor in GgufFile.open(path).tensors.values())
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    found = {name: tmp_path_factory.mktemp("folder") / name for name in FOLDERS}
    for name, folder in found.items():
        small_model(*FOLDERS[name]).save_pretrained(folder)
    return found


def test_the_unchanged_files_load(tmp_path, gguf_files, folders):
    for raw, _ in gguf_files.values():
        (tmp_path / "model.gguf").write_bytes(raw)
        compute(tmp_path / "model.gguf")
    for name, values in TOKENIZER_FILES.items():
        (tmp_path / name).write_text(json.dumps(values))
    encode(tmp_path)
    for folder in (*folders.values(), write_folder(tmp_path, CONFIG, TENSORS)):
        compute(folder)


@pytest.mark.parametrize("architecture", GGUF)
@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=edits)
def test_a_gguf_file_with_errors_in_its_head(tmp_path, gguf_files, architecture, changes):
    raw, end = gguf_files[architecture]
    for change in changes:
        raw = change.apply(raw, 0, end)
    path = tmp_path / "model.gguf"
    path.write_bytes(raw)
    is_refused(lambda: compute(path), str(path))


@pytest.mark.parametrize("architecture", GGUF)
def test_a_gguf_file_that_ends_anywhere(tmp_path, gguf_files, architecture):
    raw, end = gguf_files[architecture]
    path = tmp_path / "model.gguf"
    for length in {*range(0, end, 97), end, end + 1, *range(end, len(raw) - 31, len(raw) // 20), len(raw) - 32}:
        path.write_bytes(raw[:length])
        assert is_refused(lambda: compute(path), str(path))


@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=edits)
def test_a_folder_with_errors_in_its_table_of_tensors(tmp_path, changes):
    tensors = TENSORS
    for change in changes:
        tensors = change.apply(tensors, 0, 8 + int.from_bytes(TENSORS[:8], "little"))
    write_folder(tmp_path, CONFIG, tensors)
    is_refused(lambda: compute(tmp_path), str(tmp_path))


@pytest.mark.parametrize("name", FOLDERS)
@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.data())
def test_a_folder_with_errors_in_its_config(folders, name, changes):
    """Fields of another type, beyond any size, or that contradict each other."""
    folder = folders[name]
    file = folder / "config.json"
    original = file.read_text()
    keys = sorted({*json.loads(original), "rope_scaling", "layer_types", "text_config", "quantization_config"})
    wrong = changes.draw(st.dictionaries(st.sampled_from(keys), anything, min_size=1, max_size=3))
    try:
        file.write_text(json.dumps(json.loads(original) | wrong))
        is_refused(lambda: compute(folder), str(folder))
    finally:
        file.write_text(original)


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=edits)
def test_a_folder_with_errors_in_the_bytes_of_its_config(tmp_path, changes):
    write_folder(tmp_path, CONFIG, TENSORS)
    raw = json.dumps(CONFIG).encode()
    for change in changes:
        raw = change.apply(raw, 0, len(raw))
    (tmp_path / "config.json").write_bytes(raw)
    is_refused(lambda: compute(tmp_path), str(tmp_path))


def encode(folder: Path) -> None:
    tokenizer = Tokenizer.from_path(folder)
    ids = tokenizer.encode("hello <|im_end|>", add_special_tokens=True) + tokenizer.encode_ordinary("hello <|im_end|>")
    tokenizer.text_of(ids)
    assert all(type(token_id) is int for token_id in tokenizer.eos_ids)


TOKENIZER_FILES: dict[str, dict[str, Any]] = {
    "tokenizer.json": json.loads(tiny_tokenizer().backend.to_str()),
    "tokenizer_config.json": {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>"}
    | {"chat_template": [{"name": "default", "template": "a"}]},
    "generation_config.json": {"eos_token_id": [3, 5]},
    "config.json": {"architectures": ["LlamaForCausalLM"], "eos_token_id": 3},
}


def changed_somewhere(draw: Callable, values: Any) -> Any:
    """Return an object of JSON with another value at one place, however deep."""
    if not isinstance(values, dict | list) or not values or draw(st.integers(0, 3)) == 0:
        return draw(anything)
    keys = sorted(values) if isinstance(values, dict) else range(len(values))
    key = draw(st.sampled_from(keys))
    changed = values.copy()
    changed[key] = changed_somewhere(draw, values[key])
    return changed


@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_tokenizer_with_errors_in_its_files(tmp_path, data):
    for name, values in TOKENIZER_FILES.items():
        (tmp_path / name).write_text(json.dumps(values))
    name = data.draw(st.sampled_from(sorted(TOKENIZER_FILES)))
    raw = json.dumps(TOKENIZER_FILES[name])
    if data.draw(st.booleans()):
        raw = json.dumps(changed_somewhere(data.draw, TOKENIZER_FILES[name]))
        (tmp_path / name).write_text(raw)
    else:
        contents = raw.encode()
        for change in data.draw(edits):
            contents = change.apply(contents, 0, len(contents))
        (tmp_path / name).write_bytes(contents)
    is_refused(lambda: encode(tmp_path), "")


def write_index(folder: Path, index: object) -> None:
    write_folder(folder, CONFIG, TENSORS).joinpath("model.safetensors").rename(folder / "a.safetensors")
    (folder / "model.safetensors.index.json").write_text(index if isinstance(index, str) else json.dumps(index))


LONG = "x" * 100_000
LONG_CONFIGS = {
    "a name": CONFIG | {"hidden_size": 64, f"head{LONG}": 64},
    "many heads": CONFIG | {"hidden_size": 64} | {f"head{number}": 1000 + number for number in range(20_000)},
    "a number": CONFIG | {"hidden_size": 10**4000},
    "a number for transformers": {"architectures": ["CohereForCausalLM"], "model_type": "cohere", "num_x": 10**4000},
    "a name for transformers": {"architectures": ["CohereForCausalLM"], "model_type": "cohere", f"num_{LONG}": 1 << 20},
    "an architecture": CONFIG | {"architectures": [LONG]},
    "a method": CONFIG | {"quantization_config": {"quant_method": f"a\n{LONG}"}},
}


@pytest.mark.parametrize("config", LONG_CONFIGS.values(), ids=LONG_CONFIGS)
def test_what_a_config_spells_at_length_is_refused_at_once_in_one_line(tmp_path, config):
    """The products of pairs of heads took for ever to look for."""
    write_folder(tmp_path, config, TENSORS)
    assert is_refused(lambda: compute(tmp_path), str(tmp_path))


@pytest.mark.parametrize("text", [LONG, "a\nb", "\x1b[2J", "\u2028"])
def test_what_a_library_quotes_of_a_file_stays_one_line(tmp_path, text):
    header = json.dumps({"x": {"dtype": text, "shape": [1], "data_offsets": [0, 4]}}).encode()
    write_folder(tmp_path, CONFIG, len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ModelLoadError) as refusal:
        compute(tmp_path)
    assert refusal.value.message.isprintable()
    assert len(refusal.value.message) <= MAX_LOAD_ERROR + 1
    merges = {"type": "BPE", "vocab": {"a": 0}, "merges": [f"{text} {text}"]}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": merges}))
    with pytest.raises(ModelLoadError) as refusal:
        encode(tmp_path)
    assert refusal.value.message.isprintable()
    assert len(refusal.value.message) <= MAX_LOAD_ERROR + 1


OUTSIDE = ["../a.safetensors", "/etc/passwd", "x/a.safetensors", "a.bin", "", "..", "a.safetensors/", "x" * 5000, 5]
INDEXES = {
    **{f"a file {name!r}"[:40]: {"weight_map": {"x": name}} for name in [*OUTSIDE, None, ["a.safetensors"]]},
    "a missing file": {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}},
    "a name with NUL": {"weight_map": {"x": "a\0.safetensors"}},
    "no files": {"weight_map": {}},
    "a list": [],
    "a list of files": {"weight_map": ["a.safetensors"]},
    "nothing": "",
    "half an object": '{"weight_map": {',
    "deep objects": '{"a":' * 100_000,
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_an_index_that_names_no_files_of_its_folder_is_refused(tmp_path, index):
    write_index(tmp_path, index)
    assert is_refused(lambda: compute(tmp_path), "model.safetensors.index.json")


def test_an_index_may_name_links_as_download_caches_have_them(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    write_index(folder, {"weight_map": {"x": "b.safetensors"}})
    (folder / "b.safetensors").symlink_to((folder / "a.safetensors").rename(tmp_path / "blob"))
    assert not is_refused(lambda: compute(folder), "")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path):
    write_index(tmp_path, {"weight_map": {"x": "b.safetensors"}})
    os.mkfifo(tmp_path / "b.safetensors")
    assert is_refused(lambda: compute(tmp_path), "'b.safetensors'")
    os.mkfifo(tmp_path / "model.gguf")
    assert is_refused(lambda: compute(tmp_path / "model.gguf"), "it is no file")
    assert is_refused(lambda: Tokenizer.from_path(tmp_path / "model.gguf"), "it is no file")
    (tmp_path / "link.safetensors").symlink_to("link.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"x": "link.safetensors"}}')
    assert is_refused(lambda: compute(tmp_path), "'link.safetensors'")
