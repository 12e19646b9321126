"""Pulls from a server that speaks the hub's protocol: choice of files, resumption, hashes, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from chat.model_store.errors import StoreError
from chat.model_store.folder import NEW, ModelStore
from chat.model_store.hub import Choice, Hub, Progress, RemoteFile, Repository, choose, model_pull
from chat.model_store.manifest import Manifest
from chat.model_store.projectors import projector_among
from tests.chat.model_store.local_hub import COMMIT, LocalHub

WEIGHTS = bytes(range(256)) * 1024
GIGABYTE = 10**9


def repository_of(**sizes: int) -> Repository:
    """Return a repository of files of these sizes in GB; `__` stands for a dot."""
    files = tuple(
        RemoteFile(name.replace("__", "."), gigabytes * GIGABYTE, "", "") for name, gigabytes in sizes.items()
    )
    return Repository("org/Model", COMMIT, "main", "", files)


QUANTIZED = {"Model-Q2_K__gguf": 2, "Model-Q4_K_M__gguf": 4, "Model-Q8_0__gguf": 8, "mmproj-Model-F16__gguf": 1}
WHOLE = {"config__json": 0, "model__safetensors": 15, "consolidated__safetensors": 15, "tokenizer__json": 0}


@pytest.mark.parametrize(
    ("sizes", "device", "memory", "format", "reason"),
    [
        (QUANTIZED, "cpu", 100, "Q4_K_M", "the first of Q4_K_M"),
        (QUANTIZED, "cpu", 4, "Q2_K", "the largest that fits"),
        (QUANTIZED | WHOLE, "cpu", 100, "Q4_K_M", "the first of"),
        (QUANTIZED | WHOLE, "cuda", 100, "safetensors", "as a GPU computes in bfloat16"),
        (QUANTIZED | WHOLE, "cuda", 16, "Q4_K_M", "the first of"),
        (WHOLE, "cpu", 100, "safetensors", "no GGUF file"),
        ({"model__gguf": 1, "model-imatrix__gguf": 0}, "cpu", 100, "model", "the largest that fits"),
        ({"model-imatrix-Q4_K_M__gguf": 1, "model__imatrix__gguf": 0}, "cpu", 100, "Q4_K_M", "the first of"),
        ({"m_Q8_0__gguf": 8, "m-UD-Q4_K_M__gguf": 4}, "cpu", 100, "UD-Q4_K_M", "the first of"),
        ({"a-Q4_0__gguf": 4, "b-Q4_0__gguf": 3}, "cpu", 100, "a-Q4_0", "the largest that fits"),
    ],
)
def test_the_file_for_this_machine_is_chosen_and_the_reason_said(sizes, device, memory, format, reason) -> None:
    choice = choose(repository_of(**sizes), "", device, memory * GIGABYTE)
    assert choice.format == format
    assert reason in choice.reason
    assert "mmproj" not in choice.model_file
    has_projector = any("mmproj" in name for name in sizes) and format != "safetensors"
    assert ("mmproj" in str(choice.files)) == has_projector


def test_a_format_that_is_asked_for_is_taken_whatever_its_size() -> None:
    choice = choose(repository_of(**QUANTIZED), "q8_0", "cpu", 0)
    assert (choice.format, choice.model_file, choice.num_bytes) == ("Q8_0", "Model-Q8_0.gguf", 9 * GIGABYTE)


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (("mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"), "mmproj-F16.gguf"),
        (("mmproj-model-Q8_0.gguf", "mmproj-model-f32.gguf", "imatrix.gguf"), "mmproj-model-Q8_0.gguf"),
        (("mmproj-b.gguf", "mmproj-a.gguf", "notes.txt"), "mmproj-a.gguf"),
        (("model.gguf",), None),
    ],
)
def test_of_projectors_in_several_formats_one_comes_with_a_model(names, taken) -> None:
    assert projector_among(names) == taken


def test_the_projector_counts_where_a_format_must_fit() -> None:
    without = {name: size for name, size in QUANTIZED.items() if "mmproj" not in name}
    formats = [choose(repository_of(**sizes), "", "cpu", 6 * GIGABYTE).format for sizes in (without, QUANTIZED)]
    assert formats == ["Q4_K_M", "Q2_K"]


def test_refusals_of_a_choice_list_what_there_is() -> None:
    with pytest.raises(StoreError, match=r"no format 'Q3'\. There are: Q2_K \(3\.00 GB\), Q4_K_M \(5\.00 GB\), Q8_0"):
        choose(repository_of(**QUANTIZED), "Q3", "cpu", 0)
    with pytest.raises(
        StoreError, match=r"smallest format, Q2_K, takes 3,000,000,000 bytes, .* may take 800,000,000 of"
    ):
        choose(repository_of(**QUANTIZED), "", "cpu", GIGABYTE)
    with pytest.raises(StoreError, match="holds no GGUF file and no folder of safetensors"):
        choose(repository_of(README__md=0), "", "cpu", GIGABYTE)


def test_parts_of_a_split_file_are_one_format() -> None:
    parts = {"Q4/Model-Q4_K_M-00001-of-00002__gguf": 1, "Q4/Model-Q4_K_M-00002-of-00002__gguf": 1}
    choice = choose(repository_of(**parts), "", "cpu", 100 * GIGABYTE)
    assert (choice.format, len(choice.files)) == ("Q4_K_M", 2)
    assert choice.model_file == "Model-Q4_K_M-00001-of-00002.gguf"


def pull(
    store: ModelStore, hub: LocalHub, name: str = "tiny", format: str = "", token: str = "", **options
) -> Manifest:
    client = Hub(token, hub.url)
    repository = client.repository("org/Tiny", options.pop("revision", "main"))
    return model_pull(store, client, repository, choose(repository, format, "cpu", 2**40), name, **options)


@pytest.fixture
def tiny(local_hub: LocalHub) -> LocalHub:
    local_hub.repositories["org/Tiny"] = {
        "sub/Tiny-Q4_K_M.gguf": WEIGHTS,
        "Tiny-Q8_0.gguf": WEIGHTS * 2,
        "config.json": b"{}",
        "model.safetensors": WEIGHTS,
        "tokenizer.json": b"[]",
        "original/model.safetensors": WEIGHTS,
        "evil.py": b"x",
    }
    return local_hub


def test_a_pull_stores_the_file_with_its_commit_and_says_how_far_it_is(store: ModelStore, tiny: LocalHub) -> None:
    seen: list[tuple[int, int]] = []
    made = pull(store, tiny, on_progress=lambda progress: seen.append((progress.done, progress.num_bytes)))
    assert store.model_path("tiny").read_bytes() == WEIGHTS
    assert [file.path for file in made.files] == ["Tiny-Q4_K_M.gguf"]
    assert (made.source.place, made.source.revision, made.source.asked_revision) == ("org/Tiny", COMMIT, "main")
    assert seen[-1] == (len(WEIGHTS), len(WEIGHTS))
    assert seen == sorted(seen)
    assert list((store.root / "tiny" / "files").iterdir()) == [store.model_path("tiny")]


def test_a_folder_is_pulled_without_code(store: ModelStore, tiny: LocalHub) -> None:
    made = pull(store, tiny, format="safetensors")
    assert [file.path for file in made.files] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert store.damaged("tiny") == []


def test_the_modules_of_an_embedding_model_are_pulled_with_it(store: ModelStore, tiny: LocalHub) -> None:
    inner = {"1_Pooling/config.json": b"{}", "2_Dense/model.safetensors": WEIGHTS}
    others = {"onnx/2_Dense/config.json": b"{}", "1_Pooling/code.py": b"x", "2_Dense/pytorch_model.bin": WEIGHTS}
    tiny.repositories["org/Tiny"] |= {"modules.json": b"[]", **inner, **others}
    made = pull(store, tiny, format="safetensors")
    whole = {"config.json", "model.safetensors", "tokenizer.json", "modules.json"}
    assert {file.path for file in made.files} == {*whole, *inner}
    assert (store.model_path("tiny") / "2_Dense" / "model.safetensors").read_bytes() == WEIGHTS


def test_the_adapter_by_which_a_model_sees_is_pulled_with_it(store: ModelStore, tiny: LocalHub) -> None:
    adapter = {"vision-lora/adapter_config.json": b"{}", "vision-lora/adapter_model.safetensors": WEIGHTS}
    tiny.repositories["org/Tiny"] |= {**adapter, "speech-lora/adapter_model.safetensors": WEIGHTS}
    made = pull(store, tiny, format="safetensors")
    assert {file.path for file in made.files} == {"config.json", "model.safetensors", "tokenizer.json", *adapter}
    assert (store.model_path("tiny") / "vision-lora" / "adapter_model.safetensors").read_bytes() == WEIGHTS


def test_a_transfer_that_breaks_goes_on_where_it_was(store: ModelStore, tiny: LocalHub) -> None:
    tiny.breaks = [len(WEIGHTS) // 2]
    pull(store, tiny)
    assert store.model_path("tiny").read_bytes() == WEIGHTS
    assert [asked for _, _, asked in tiny.requests][0] == ""
    assert [asked for _, _, asked in tiny.requests][1].startswith("bytes=")


def test_a_pull_that_failed_keeps_what_it_has_and_the_next_takes_the_rest(store: ModelStore, tiny: LocalHub) -> None:
    tiny.breaks = [len(WEIGHTS) // 2, *[0] * 20]
    with pytest.raises(StoreError, match="could not be fetched: .* is kept: pull again to go on"):
        pull(store, tiny)
    assert store.names() == []
    tiny.breaks.clear()
    tiny.requests.clear()
    pull(store, tiny)
    assert store.model_path("tiny").read_bytes() == WEIGHTS
    [(_, _, asked)] = tiny.requests
    assert int(asked.removeprefix("bytes=").removesuffix("-")) == len(WEIGHTS) // 2


def test_a_pull_of_something_else_does_not_take_over_what_is_there(store: ModelStore, tiny: LocalHub) -> None:
    tiny.breaks = [len(WEIGHTS) // 2, *[0] * 20]
    with pytest.raises(StoreError, match="could not be fetched"):
        pull(store, tiny)
    with pytest.raises(StoreError, match=rf"A pull of org/Tiny:Q4_K_M at {COMMIT} as 'tiny' is not finished"):
        pull(store, tiny, format="Q8_0")


@pytest.mark.parametrize("more", [1, len(WEIGHTS)])
def test_a_server_that_sends_more_than_a_file_has_fills_no_disk(store: ModelStore, tiny: LocalHub, more: int) -> None:
    tiny.forged["sub/Tiny-Q4_K_M.gguf"] = WEIGHTS + bytes(more)
    with pytest.raises(StoreError, match="has 262,144 bytes, and the server sends more: use another mirror"):
        pull(store, tiny)
    tiny.forged.clear()
    pull(store, tiny)
    assert store.model_path("tiny").read_bytes() == WEIGHTS


def test_a_server_without_ranges_sends_the_file_anew(store: ModelStore, tiny: LocalHub) -> None:
    tiny.has_ranges, tiny.breaks = False, [len(WEIGHTS) // 2]
    seen: list[int] = []
    pull(store, tiny, on_progress=lambda progress: seen.append(progress.done))
    assert store.model_path("tiny").read_bytes() == WEIGHTS
    assert max(seen) == seen[-1] == len(WEIGHTS)


def test_another_host_gets_no_token(store: ModelStore, tiny: LocalHub) -> None:
    tiny.token = "hf_secret"
    with LocalHub(tiny.repositories).running() as other:
        tiny.large_at = other.url
        pull(store, tiny, token="hf_secret")
        assert set(other.authorizations) == {None}
    assert set(tiny.authorizations) == {"Bearer hf_secret"}


def test_contents_that_are_not_what_the_hub_says_are_refused(store: ModelStore, tiny: LocalHub) -> None:
    tiny.forged["sub/Tiny-Q4_K_M.gguf"] = WEIGHTS[::-1]
    with pytest.raises(StoreError, match=r"is not what the repository says: its hash is .*, not .*\. It was removed"):
        pull(store, tiny)
    tiny.forged = {"tokenizer.json": b"[1"}
    with pytest.raises(StoreError, match=r"tokenizer\.json is not what the repository says"):
        pull(store, tiny, "whole", format="safetensors")
    assert store.names() == []
    tiny.forged.clear()
    pull(store, tiny)
    pull(store, tiny, "whole", format="safetensors")


def test_a_file_that_is_no_model_is_not_stored(store: ModelStore, tiny: LocalHub) -> None:
    tiny.repositories["org/Tiny"] = {"Tiny-Q4_K_M.gguf": b"not a model"}
    with pytest.raises(StoreError, match=r"org/Tiny cannot be served: .* `manage.py model rm tiny` removes what was"):
        pull(store, tiny)
    assert store.names() == []
    assert store.remove("tiny") > 0
    assert not (store.root / NEW / "tiny").exists()


def test_repositories_that_cannot_be_had_are_refused_by_what_to_do(store: ModelStore, tiny: LocalHub) -> None:
    with pytest.raises(
        StoreError, match=r"There is no repository 'org/None' at .*set LIGHTCONE_HUB_TOKEN if it is priv"
    ):
        Hub(endpoint=tiny.url).repository("org/None")
    with pytest.raises(StoreError, match="has no revision 'v7': use a branch, a tag or a commit"):
        pull(store, tiny, revision="v7")
    for name in ("a/b/c", "../x", "a b"):
        with pytest.raises(StoreError, match="cannot be a repository: write OWNER/NAME"):
            Hub(endpoint=tiny.url).repository(name)
    tiny.gated, tiny.token = {"org/Tiny"}, "hf_secret"
    with pytest.raises(StoreError, match=r"is gated: accept its terms at .*/org/Tiny, and set LIGHTCONE_HUB_TOKEN"):
        pull(store, tiny)
    assert pull(store, tiny, token="hf_secret").name == "tiny"


def test_a_hub_that_does_not_answer_is_said() -> None:
    with pytest.raises(StoreError, match=r"does not answer .* name a mirror in HF_ENDPOINT\. `manage.py model list`"):
        Hub(endpoint="http://127.0.0.1:9").repository("org/Tiny")


def test_a_repository_whose_paths_leave_it_is_refused(store: ModelStore, tiny: LocalHub) -> None:
    tiny.repositories["org/Tiny"]["../outside.gguf"] = WEIGHTS
    with pytest.raises(StoreError, match="The repository is not to be trusted"):
        pull(store, tiny)


def test_too_little_room_is_said_before_anything_is_fetched(
    store: ModelStore, tiny: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(
        StoreError, match=r"262,144 bytes are needed and the disk of .* has 1,000 left: free some space"
    ):
        pull(store, tiny)
    assert tiny.requests == []


def test_progress_counts_its_own_try_alone() -> None:
    progress = Progress(1000, done=400, done_before=400)
    assert progress.rate == 0
    assert progress.seconds_left == float("inf")
    progress.advance(100)
    assert progress.rate > 0


def test_what_the_hub_does_not_say_is_not_trusted(tiny: LocalHub) -> None:
    hub = Hub(endpoint=tiny.url)
    tiny.left_out = ("sha",)
    with pytest.raises(StoreError, match="does not say which commit of org/Tiny this is"):
        hub.repository("org/Tiny")
    tiny.left_out = ("size",)
    with pytest.raises(StoreError, match="says no size or hash of"):
        hub.repository("org/Tiny")


def test_the_first_file_by_name_is_loaded() -> None:
    files = tuple(RemoteFile(path, 1, "", "") for path in ("b/x-00002-of-00002.gguf", "b/x-00001-of-00002.gguf"))
    assert Choice("Q4_0", files, "").model_file == "x-00001-of-00002.gguf"


def test_a_pull_needs_a_name_of_a_model(store: ModelStore, tiny: LocalHub, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be a model's name"):
        pull(store, tiny, name="../out")
