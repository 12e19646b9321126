"""The page's state and presets: kept for their owner, shared if the owner says so, and gone with the account."""

from __future__ import annotations

from typing import Any

import pytest

from chat.access.models import Project
from chat.models import PageState, Preset
from chat.playground import kept
from tests.chat.conversations.conftest import Page

WARM = {"temperature": 1.5, "stop": ["\0"]}


def make(page: Page, name: str, **fields: Any) -> Any:
    status, made = page("POST", "presets", {"name": name, "parameters": WARM, **fields})
    assert status == 200, made
    return made


def names(page: Page) -> list[tuple[str, bool]]:
    return [(preset["name"], preset["is_own"]) for preset in page("GET", "presets")[1]["data"]]


def test_the_last_state_is_kept_for_its_user(ann: Page, bob: Page) -> None:
    assert ann("GET", "state") == (200, {})
    ann("PATCH", "state", {"model": "a"})
    status, saved = ann("PATCH", "state", {"model": "b", "panels": {"left": True}})
    assert (status, saved) == (200, {"saved_at": PageState.objects.get().saved_at.timestamp()})
    assert ann("GET", "state") == (200, {"model": "b", "panels": {"left": True}})
    assert bob("GET", "state") == (200, {})


def test_a_change_of_one_name_leaves_the_others(ann: Page) -> None:
    """Each device sent all that it knew, and so undid what another had changed."""
    ann("PATCH", "state", {"keys": {"send": "Enter"}, "votes": [1]})
    ann("PATCH", "state", {"votes": [1, 2]})
    ann("PATCH", "state", {"keys": {}})
    assert ann("GET", "state") == (200, {"keys": {}, "votes": [1, 2]})


def test_a_state_is_bounded(ann: Page) -> None:
    status, refused = ann("PATCH", "state", {"x": "x" * kept.MAX_STATE_BYTES})
    assert (status, refused["error"]["code"]) == (413, "request_too_large")
    assert ann("PATCH", "state", "[]")[0] == 400
    assert not PageState.objects.exists()
    half = "x" * (kept.MAX_STATE_BYTES // 2)
    assert [ann("PATCH", "state", {name: half})[0] for name in "xy"] == [200, 413]
    assert ann("GET", "state") == (200, {"x": half})


def test_a_preset_is_made_changed_and_deleted(ann: Page) -> None:
    made = make(ann, " warm  one ")
    own = {"is_shared": False, "is_own": True, "owner": "ann"}
    assert made == {"id": made["id"], "name": "warm one", "parameters": WARM, **own}
    assert ann("GET", "presets") == (200, {"data": [made]})
    status, changed = ann("PATCH", f"presets/{made['id']}", {"parameters": {"top_k": 5}})
    assert (status, changed) == (200, made | {"parameters": {"top_k": 5}})
    assert ann("PATCH", f"presets/{made['id']}", {"name": "warm one"})[0] == 200, "its own name is no conflict"
    assert ann("DELETE", f"presets/{made['id']}") == (200, {"num_deleted": 1})
    assert ann("DELETE", f"presets/{made['id']}")[0] == 404


def test_a_shared_preset_is_read_by_the_project_and_changed_by_its_owner(ann: Page, bob: Page) -> None:
    shared, own = make(ann, "shared", is_shared=True), make(ann, "own")
    make(bob, "mine")
    assert names(bob) == [("mine", True), ("shared", False)]
    assert bob("GET", "presets")[1]["data"][1]["owner"] == "ann"
    for preset in (shared, own):
        assert bob("PATCH", f"presets/{preset['id']}", {"name": "x"})[0] == 404
        assert bob("DELETE", f"presets/{preset['id']}")[0] == 404
    ann("PATCH", f"presets/{shared['id']}", {"is_shared": False})
    assert names(bob) == [("mine", True)]


def test_a_preset_of_another_project_is_not_shared_here(ann: Page, bob: Page) -> None:
    make(ann, "shared", is_shared=True)
    here = Project.objects.get()
    Preset.objects.update(project=Project.objects.create(org=here.org, name="Elsewhere"))
    assert (names(ann), names(bob)) == ([("shared", True)], [])


def test_a_name_is_there_once_for_each_owner(ann: Page, bob: Page) -> None:
    made, other = make(ann, "warm"), make(ann, "cold")
    make(bob, "warm")
    for method, path in (("POST", "presets"), ("PATCH", f"presets/{other['id']}")):
        status, refused = ann(method, path, {"name": made["name"], "parameters": {}})
        assert (status, refused["error"]["code"], refused["error"]["param"]) == (409, "conflict", "name")


def test_presets_are_bounded_and_go_with_the_account(ann: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_PRESETS", 1)
    make(ann, "one")
    ann("PATCH", "state", {})
    status, refused = ann("POST", "presets", {"name": "two", "parameters": {}})
    assert (status, refused["error"]["code"]) == (429, "insufficient_quota")
    assert ann.user is not None
    ann.user.delete()
    assert not Preset.objects.exists()
    assert not PageState.objects.exists()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": None}, "name"),
        ({"name": " "}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"parameters": []}, "parameters"),
        ({"parameters": {"x": "x" * 65_536}}, "parameters"),
        ({"is_shared": "perhaps"}, "is_shared"),
        ({"owner": "bob"}, "owner"),
    ],
)
def test_a_bad_preset_is_refused_by_its_field(ann: Page, fields: dict[str, Any], param: str) -> None:
    status, refused = ann("POST", "presets", {"name": "x", "parameters": {}, **fields})
    assert (status, refused["error"]["param"]) == (400, param)
    assert not Preset.objects.exists()
