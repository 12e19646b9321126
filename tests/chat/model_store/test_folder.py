"""The store: models appear and go whole, names stay inside it, and files are what they were."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.model_store.errors import StoreError
from chat.model_store.folder import GONE, LOCKS, NEW, WORK, ModelStore
from chat.model_store.local import model_import, models_at
from chat.model_store.manifest import FILE_NAME, Manifest, name_check
from tests.chat.model_store.conftest import DESCRIPTION


def add(store: ModelStore, tmp_path: Path, name: str, data: bytes = b"weights") -> Manifest:
    file = tmp_path / "origin" / "one.gguf"
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_bytes(data)
    [model] = models_at(file)
    return model_import(store, model, name)


def test_a_model_is_listed_shown_and_removed(store: ModelStore, tmp_path: Path) -> None:
    assert store.names() == []
    made = add(store, tmp_path, "small:Q4")
    assert store.names() == ["small:Q4"]
    assert store.get("small:Q4") == made
    assert (made.description, made.num_bytes, made.source.kind) == (DESCRIPTION, 7, "file")
    assert store.model_path("small:Q4").read_bytes() == b"weights"
    assert store.remove("small:Q4") > 7
    assert store.names() == []
    assert [entry.name for entry in store.root.iterdir()] == [WORK]


def test_a_copy_shares_files_and_outlives_the_original(store: ModelStore, tmp_path: Path) -> None:
    add(store, tmp_path, "first")
    store.copy("first", "org/second:v2")
    assert os.path.samefile(store.model_path("first"), store.model_path("org/second:v2"))
    store.remove("first")
    assert store.damaged("org/second:v2") == []
    assert store.get("org/second:v2").source.kind == "file"


def test_no_name_is_taken_twice(store: ModelStore, tmp_path: Path) -> None:
    add(store, tmp_path, "first")
    with pytest.raises(StoreError, match="There is a model 'first' already: remove it first"):
        add(store, tmp_path, "first")
    with pytest.raises(StoreError, match="already"):
        store.copy("first", "first")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/../b", "/etc", "a//b", "a/b/c", "a:b:c", "a b", "ä", "x" * 201]
)
def test_a_name_that_could_leave_the_store_is_refused(store: ModelStore, name: str) -> None:
    for act in (store.get, store.remove, store.model_path, store.has, lambda one: store.copy(one, "x")):
        with pytest.raises(StoreError, match="cannot be a model's name: use letters"):
            act(name)


@given(st.text(max_size=30))
def test_a_name_that_is_allowed_has_a_folder_of_its_own(name: str) -> None:
    store = ModelStore(Path("/store"))
    try:
        name_check(name)
    except StoreError:
        return
    assert store._folder(name).parent == store.root


def test_damaged_files_are_named(store: ModelStore, tmp_path: Path) -> None:
    add(store, tmp_path, "first")
    file = store.model_path("first")
    assert store.damaged("first") == []
    file.write_bytes(b"weighty")
    assert store.damaged("first") == ["one.gguf has other contents than when it was stored."]
    file.write_bytes(b"w")
    assert store.damaged("first") == ["one.gguf has 1 bytes instead of 7."]
    file.unlink()
    assert store.damaged("first") == ["one.gguf is missing."]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:40], "is damaged"),
        (lambda text: text.replace('"version": 1', '"version": 9'), "version 9, this installation knows 1"),
        (lambda text: text.replace('"path": "one.gguf"', '"path": "../../one.gguf"'), "leaves the model's folder"),
        (
            lambda text: text.replace('"model_file": "one.gguf"', '"model_file": "/etc/passwd"'),
            "leaves the model's folder",
        ),
        (lambda text: "[]", "is damaged"),
    ],
)
def test_a_damaged_manifest_is_said_and_can_be_removed(store: ModelStore, tmp_path: Path, change, words) -> None:
    add(store, tmp_path, "first")
    add(store, tmp_path, "other")
    file = store.root / "first" / FILE_NAME
    file.write_text(change(file.read_text()))
    error, other = store.all()
    assert isinstance(error, StoreError)
    assert words in str(error)
    assert isinstance(other, Manifest)
    store.remove("first")
    assert store.names() == ["other"]


def test_what_fails_leaves_nothing(store: ModelStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"one\.gguf is not a GGUF file"):
        add(store, tmp_path, "first", b"not a model")
    assert store.names() == []
    assert not (store.root / NEW / "first").exists()


def test_a_model_that_another_process_changes_is_refused(store: ModelStore, tmp_path: Path) -> None:
    add(store, tmp_path, "first")
    with (store.root / LOCKS / "first").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="Another process adds or removes 'first'"):
            store.remove("first")
    store.remove("first")


def test_a_full_disk_is_said(store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.link", refused)
    monkeypatch.setattr("shutil.copyfile", refused)
    with pytest.raises(StoreError, match="disk of .* is full: free some space, or set LIGHTCONE_MODEL_STORE"):
        add(store, tmp_path, "first")
    assert store.names() == []


def test_a_manifest_is_json_that_says_everything(store: ModelStore, tmp_path: Path) -> None:
    made = add(store, tmp_path, "first")
    values = json.loads((store.root / "first" / FILE_NAME).read_text())
    assert values["files"] == [{"path": "one.gguf", "num_bytes": 7, "sha256": made.files[0].sha256}]
    assert values["description"]["licence"] == "mit"


@pytest.mark.parametrize("text", ['"num_bytes": 7', '"context": 4096', '"revision": ""', '"has_template": true'])
def test_a_value_of_another_type_damages_a_manifest(store: ModelStore, tmp_path: Path, text: str) -> None:
    add(store, tmp_path, "first")
    file = store.root / "first" / FILE_NAME
    assert text in file.read_text()
    file.write_text(file.read_text().replace(text, f"{text.partition(':')[0]}: [null]"))
    with pytest.raises(StoreError, match=r"is damaged \(\w+ is \[null\]\)"):
        store.get("first")


def test_a_folder_under_another_name_is_said(store: ModelStore, tmp_path: Path) -> None:
    add(store, tmp_path, "first")
    (store.root / "first").rename(store.root / "second")
    with pytest.raises(StoreError, match="is that of 'first': give its folder that name"):
        store.get("second")


def test_names_like_those_of_the_stores_own_files_are_names(store: ModelStore, tmp_path: Path) -> None:
    for name in ("a", "a.gone", "a.lock", "new", "gone", "locks"):
        add(store, tmp_path, name)
    store.remove("a")
    assert store.names() == ["a.gone", "a.lock", "gone", "locks", "new"]


def test_what_a_killed_removal_or_addition_left_is_removed(store: ModelStore, tmp_path: Path) -> None:
    for place in (f"{GONE}/first/files", f"{NEW}/first/files", "first/files"):
        (store.root / place).mkdir(parents=True)
        (store.root / place / "x").write_text("12345")
    assert store.names() == []
    assert store.remove("first") == 15
    (store.root / "first" / "files").mkdir(parents=True)
    add(store, tmp_path, "first")
    assert store.names() == ["first"]


def test_a_pull_that_is_not_finished_is_not_lost_to_an_import(store: ModelStore, tmp_path: Path) -> None:
    with store.locked("first"):
        (store.begin("first", "org/Tiny:Q4_0 at 1") / "part").write_text("fetched")
    add(store, tmp_path, "other")
    for act in (lambda: add(store, tmp_path, "first"), lambda: store.copy("other", "first")):
        with pytest.raises(StoreError, match=r"A pull of org/Tiny:Q4_0 at 1 as 'first' is not finished: finish it"):
            act()
    assert store.unfinished() == ["first"]
    assert store.remove("first") == len("fetched") + len("org/Tiny:Q4_0 at 1")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")])
def test_a_store_that_this_user_may_not_use_is_said(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    add(store, tmp_path, "first")

    def refused(*arguments: object, **options: object) -> None:
        raise error

    for name in ("iterdir", "open", "rename"):
        monkeypatch.setattr(Path, name, refused)
    for act in (store.names, lambda: store.remove("first"), lambda: store.copy("first", "second")):
        with pytest.raises(StoreError, match="cannot be (used|read)"):
            act()
