"""What is done with several chats at once: picked, put into folders, archived, exported, and taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from chat.conversations import exports
from chat.conversations.models import Conversation
from tests.browser.scripted import ScriptedPage
from tests.browser.test_history import AGES, HAIKU, INVOICES, LISBON, OLD, ROW, TITLES, keep

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    # The server of these tests is synchronous; the product's streams what this one collects.
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous"),
]

PICK = '.chat-pick[data-pick="{}"] input'


@pytest.fixture
def history(scripted: ScriptedPage) -> Any:
    """The page of somebody with four chats."""
    for chat, title in TITLES.items():
        keep("ada", chat, title, days=AGES[chat])
    page = scripted.sign_in()
    page.wait_for_selector(ROW.format(HAIKU))
    return page


def select_several(page: Any) -> None:
    page.click(".view-menu summary")
    page.click(".view-menu >> text=Select several")
    page.wait_for_selector(PICK.format(HAIKU))


def folders() -> dict[str, str]:
    return dict(Conversation.objects.values_list("public_id", "folder"))


def export(page: Any, menu: str, name: str) -> str:
    page.click(f"{menu} summary")
    with page.expect_download() as download:
        page.click(f'{menu} .menu-act:has-text("{name}")')
    return Path(download.value.path()).read_text()


def titles(text: str) -> list[str]:
    return [chat["title"] for chat in json.loads(text)["conversations"]]


def test_shift_picks_a_row_of_chats_and_all_shown_the_rest(history: Any) -> None:
    select_several(history)
    assert history.locator(".picked-acts").get_attribute("inert") is not None
    history.click(PICK.format(INVOICES))
    history.click(PICK.format(OLD), modifiers=["Shift"])
    history.wait_for_selector(".picked-head:has-text('3 selected')")
    assert not history.is_checked(PICK.format(HAIKU))
    history.click(".picked-bar >> text=All shown")
    history.wait_for_selector(".picked-head:has-text('4 selected')")
    history.click(".picked-bar >> text=All shown")
    history.wait_for_selector(".picked-head:has-text('0 selected')")


def test_the_selection_is_made_and_ended_by_keyboard(history: Any) -> None:
    select_several(history)
    history.focus("#chat-search")
    history.keyboard.press("ArrowDown")
    history.keyboard.press("Space")
    history.keyboard.press("ArrowDown")
    history.keyboard.press("ArrowDown")
    history.keyboard.press("Shift+Space")
    history.wait_for_selector(".picked-head:has-text('3 selected')")
    history.keyboard.press("Control+a")
    history.wait_for_selector(".picked-head:has-text('4 selected')")
    history.keyboard.press("Escape")
    history.wait_for_selector(".picked-bar", state="detached")
    history.wait_for_selector(".view-menu summary:focus")


def test_picked_chats_go_into_a_folder_and_back(history: Any) -> None:
    Conversation.objects.filter(public_id=OLD).update(folder="Plans")
    history.reload()
    history.click('.folder-head:has-text("Plans")')
    history.wait_for_selector(ROW.format(OLD))
    select_several(history)
    for chat in (LISBON, OLD):
        history.check(PICK.format(chat))
    history.click(".picked-folder summary")
    history.click(".picked-folder >> text=New folder")
    history.fill("#folder-name", "Trips")
    history.keyboard.press("Enter")
    history.wait_for_selector("#notice:has-text('2 chats are in the folder.')")
    assert folders() == {HAIKU: "", INVOICES: "", LISBON: "Trips", OLD: "Trips"}
    history.click('.folder-head:has-text("Trips")')
    history.wait_for_selector(f".folder {ROW.format(LISBON)}")
    history.click("#notice >> text=Undo")
    history.wait_for_selector('.folder-head:has-text("Plans")')
    history.wait_for_selector('.folder-head:has-text("Trips")', state="detached")
    assert folders() == {HAIKU: "", INVOICES: "", LISBON: "", OLD: "Plans"}


def test_picked_chats_are_archived_and_come_back(history: Any) -> None:
    select_several(history)
    for chat in (HAIKU, OLD):
        history.check(PICK.format(chat))
    history.click(".picked-bar >> text=Archive")
    history.wait_for_selector("#notice:has-text('2 chats are archived.')")
    history.wait_for_selector(ROW.format(HAIKU), state="detached")
    history.click("#notice >> text=Undo")
    history.wait_for_selector(ROW.format(HAIKU))
    history.wait_for_selector(ROW.format(OLD))
    assert not Conversation.objects.exclude(archived_at=None).exists()


def test_picked_chats_are_one_file(history: Any) -> None:
    select_several(history)
    for chat in (HAIKU, LISBON):
        history.check(PICK.format(chat))
    text = export(history, ".picked-export", "JSON")
    assert titles(text) == [TITLES[HAIKU], TITLES[LISBON]]
    assert export(history, ".picked-export", "Markdown").startswith("# Two haikus\n")
    assert len(export(history, ".picked-export", "OpenAI JSONL").splitlines()) == 2
    history.wait_for_selector("#notice", state="detached")


def test_a_file_of_several_chats_comes_in_again(history: Any, tmp_path: Path) -> None:
    select_several(history)
    history.click(".picked-bar >> text=All shown")
    (tmp_path / "chats.json").write_text(export(history, ".picked-export", "JSON"))
    history.click("[aria-label='End the selection']")
    history.click(".view-menu summary")
    history.click(".view-menu >> text=Import")
    history.set_input_files("#import-files", [tmp_path / "chats.json"])
    history.wait_for_selector("text=4 chats are imported.")
    assert Conversation.objects.filter(title=TITLES[OLD]).count() == 2


def test_all_that_is_found_is_exported_and_some_of_it_deleted(history: Any) -> None:
    history.fill("#chat-search", "trams")
    history.wait_for_selector(".hit:nth-child(1)")
    assert titles(export(history, ".hits-export", "JSON")) == [TITLES[LISBON]]
    history.fill("#chat-search", "café")
    history.wait_for_selector(".hit:nth-child(4)")
    history.click(".hits-head >> text=Select")
    for chat in (HAIKU, OLD):
        history.check(PICK.format(chat))
    history.click(".picked-bar >> text=Delete")
    history.wait_for_selector(".hit:nth-child(3)", state="detached")
    assert history.locator(".hit-title").all_text_contents() == [TITLES[LISBON], TITLES[INVOICES]]
    history.click("#notice >> text=Undo")
    history.wait_for_selector(".hit:nth-child(4)")


def test_too_much_for_one_file_says_the_limit(
    history: Any, scripted: ScriptedPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MAX_EXPORTED", 3)
    select_several(history)
    history.click(".picked-bar >> text=All shown")
    history.click(".picked-export summary")
    history.wait_for_selector(".menu-note:has-text('1,000 chats')")
    history.click('.picked-export .menu-act:has-text("Markdown")')
    history.wait_for_selector("#notice.is-problem:has-text('at most 3 chats')")
    scripted.problems[:] = [problem for problem in scripted.problems if "413" not in problem]


def test_on_a_phone_the_drawer_makes_room_for_what_takes_it_back(history: Any) -> None:
    history.set_viewport_size({"width": 390, "height": 844})
    history.click("#sidebar-toggle")
    select_several(history)
    history.check(PICK.format(LISBON))
    history.click(".picked-bar >> text=Delete")
    history.wait_for_selector(".sidebar", state="detached")
    history.click("#notice >> text=Undo")
    history.click("#sidebar-toggle")
    history.wait_for_selector(ROW.format(LISBON))


def test_what_was_done_to_some_is_said_and_can_be_undone(history: Any, scripted: ScriptedPage) -> None:
    """The server takes 1,000 chats at once. Where a later portion failed, nothing said so, or nothing led back."""
    select_several(history)
    for chat in (HAIKU, INVOICES):
        history.click(PICK.format(chat))
    history.route("**/playground/api/change", _first_alone)
    history.evaluate(
        """async ([haiku, invoices]) => {
        const acts = await import('/static/chat/playground/app/sidebar/chat_acts.js');
        const others = Array.from({ length: 999 }, (_, at) => `unknown-${at}`);
        await acts.archiveChats([haiku, ...others, invoices]);
    }""",
        [HAIKU, INVOICES],
    )
    history.wait_for_selector("#notice:has-text('The chat is archived. Not all was done: It is too late.')")
    assert Conversation.objects.exclude(archived_at=None).get().public_id == HAIKU
    history.click("#notice button:has-text('Undo')")
    archived = Conversation.objects.exclude(archived_at=None)
    scripted.wait_for(lambda: not archived.all().exists())
    scripted.problems[:] = [problem for problem in scripted.problems if "500" not in problem]


def _first_alone(route: Any) -> None:
    """Refuse all but the first chat of the history, and what takes it back."""
    if HAIKU in route.request.post_data_json["ids"]:
        route.continue_()
    else:
        route.fulfill(status=500, json={"error": {"message": "It is too late.", "code": "internal", "param": None}})


def test_a_chat_that_another_tab_has_brought_back_leaves_the_archive(history: Any, scripted: ScriptedPage) -> None:
    """Nothing had changed, so that nothing was said, and the row stayed."""
    now = timezone.now()
    Conversation.objects.filter(public_id=OLD).update(archived_at=now)
    history.click(".view-menu summary")
    history.click(".view-menu >> text=Archived")
    history.wait_for_selector(".other-chats .chat-row")
    Conversation.objects.filter(public_id=OLD).update(archived_at=None)
    history.click(".other-chats button:has-text('Unarchive')")
    history.wait_for_selector(".other-chats .chat-row", state="detached")
