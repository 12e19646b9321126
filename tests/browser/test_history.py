"""The left column: one's chats in groups, what is done with them, the search, imports and links."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from chat.conversations.models import Conversation
from chat.conversations.services import conversation_create
from chat.conversations.turns import TurnSent, turn_put
from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HAIKU, INVOICES, LISBON, OLD = "haiku", "invoices", "lisbon", "old"
TITLES = {HAIKU: "Two haikus", INVOICES: "Schema of invoices", LISBON: "Trams in Lisbon", OLD: "An old plan"}
AGES = {HAIKU: 0, INVOICES: 1, LISBON: 3, OLD: 400}
ROW = '.chat-row[data-chat="{}"]'
MENU_ACT = '.popover [role=menuitem]:has-text("{}")'


def keep(name: str, chat: str, title: str, *, days: int = 0, num_questions: int = 1) -> None:
    """Keep a chat of somebody, last changed some days ago."""
    user = get_user_model().objects.get(username=name)
    conversation_create(user_id=user.pk, public_id=chat, fields={"title": title})
    parent = ""
    for number in range(num_questions):
        answer = {"choices": [{"content": f"Answer {number}. " * 40, "reasoning": "", "calls": []}], "shown": 0}
        for turn, role, content in (
            (f"q{number}", "user", f"The café question {number}"),
            (f"a{number}", "assistant", answer),
        ):
            sent = TurnSent(turn, parent, role, "ended", {"content": content})
            turn_put(user_id=user.pk, conversation_id=chat, sent=sent)
            parent = turn
    at = timezone.now() - timedelta(days=days)
    Conversation.objects.filter(user=user, public_id=chat).update(updated_at=at)


@pytest.fixture
def history(scripted: ScriptedPage) -> Any:
    """The page of somebody with four chats."""
    for chat, title in TITLES.items():
        keep("ada", chat, title, days=AGES[chat])
    page = scripted.sign_in()
    page.wait_for_selector(ROW.format(HAIKU))
    return page


def act(page: Any, chat: str, *names: str) -> None:
    """Choose acts of a chat's menu, one within the other."""
    page.hover(ROW.format(chat))
    page.click(f"{ROW.format(chat)} .row-more")
    for name in names:
        page.click(MENU_ACT.format(name))


def groups(page: Any) -> dict[str, list[str]]:
    titles = "[...node.querySelectorAll('.chat-link')].map((link) => link.textContent)"
    read = f"nodes => nodes.map((node) => [node.ariaLabel, {titles}])"
    return dict(page.eval_on_selector_all(".chat-group", read))


def stored(chat: str) -> Conversation:
    return Conversation.objects.get(public_id=chat)


def test_chats_stand_in_groups_by_their_last_change(history: Any) -> None:
    year = (timezone.now() - timedelta(days=AGES[OLD])).year
    found = groups(history)
    assert list(found)[:3] == ["Today", "Yesterday", "Last 7 days"]
    assert str(year) in list(found)[3]
    assert [title for titles in found.values() for title in titles] == list(TITLES.values())


def test_a_chat_opens_by_a_click_and_is_marked(history: Any) -> None:
    history.click(f"{ROW.format(LISBON)} .chat-link")
    history.wait_for_selector("[data-turn=q0]")
    assert history.url.endswith(f"/c/{LISBON}")
    assert history.get_attribute(".chat-link[aria-current=page]", "title") == TITLES[LISBON]


def test_a_chat_is_renamed_in_its_row(history: Any) -> None:
    history.focus(f"{ROW.format(INVOICES)} .chat-link")
    history.keyboard.press("F2")
    history.fill(".rename-input", "Bills")
    history.keyboard.press("Enter")
    history.wait_for_selector(f'{ROW.format(INVOICES)} .chat-link[title="Bills"]')
    history.reload()
    history.wait_for_selector(f'{ROW.format(INVOICES)} .chat-link[title="Bills"]')


def test_escape_leaves_a_title_as_it_was(history: Any) -> None:
    act(history, INVOICES, "Rename")
    history.fill(".rename-input", "Bills")
    history.keyboard.press("Escape")
    history.wait_for_selector(f'{ROW.format(INVOICES)} .chat-link[title="{TITLES[INVOICES]}"]')
    assert stored(INVOICES).title == TITLES[INVOICES]


def test_a_pinned_chat_stands_first_and_one_in_a_folder_in_its_folder(history: Any) -> None:
    act(history, OLD, "Pin")
    history.wait_for_selector("[aria-label=Pinned]")
    act(history, LISBON, "Move to folder", "New folder")
    history.fill("#folder-name", "Trips")
    history.keyboard.press("Enter")
    history.click('.folder-head:has-text("Trips")')
    history.wait_for_selector(f".folder {ROW.format(LISBON)}")
    assert groups(history)["Pinned"] == [TITLES[OLD]]
    assert stored(LISBON).folder == "Trips"


def test_an_archived_chat_is_in_the_archive_and_comes_back(history: Any) -> None:
    act(history, LISBON, "Archive")
    history.wait_for_selector(ROW.format(LISBON), state="detached")
    history.click(".view-menu summary")
    history.click(".view-menu >> text=Archived chats")
    history.click(f'button[aria-label="Unarchive {TITLES[LISBON]}"]')
    history.click('[aria-label="Back to the chats"]')
    history.wait_for_selector(ROW.format(LISBON))


def test_a_deleted_chat_is_gone_at_once_and_one_click_brings_it_back(history: Any) -> None:
    history.click(f"{ROW.format(HAIKU)} .chat-link")
    history.wait_for_selector("[data-turn=q0]")
    history.press(f"{ROW.format(HAIKU)} .chat-link", "Delete")
    history.wait_for_selector(ROW.format(HAIKU), state="detached")
    history.wait_for_selector("[data-turn=q0]", state="detached")
    assert stored(HAIKU).deleted_at is not None
    history.click("#notice >> text=Undo")
    history.wait_for_selector(f"{ROW.format(HAIKU)}.is-present")
    history.wait_for_selector("[data-turn=q0]")
    assert stored(HAIKU).deleted_at is None


@pytest.fixture
def three(scripted: ScriptedPage) -> Any:
    """The page of somebody with three chats of today."""
    for chat in ("one", "two", "three"):
        keep("ada", chat, chat)
    page = scripted.sign_in()
    page.wait_for_selector(ROW.format("one"))
    return page


def test_delete_that_is_held_down_deletes_one_chat(three: Any, scripted: ScriptedPage) -> None:
    """Each repeat of the key deleted the next one."""
    three.focus(f"{ROW.format('three')} .chat-link")
    for _ in range(3):
        three.keyboard.down("Delete")
    three.keyboard.up("Delete")
    three.wait_for_selector(ROW.format("three"), state="detached")
    scripted.wait_idle()
    assert three.locator(".chat-row").count() == 2
    assert Conversation.objects.filter(deleted_at=None).count() == 2


def test_undo_takes_back_all_deletions_that_its_line_names(three: Any) -> None:
    """It took back the last one alone, and the others were to be found among the deleted ones."""
    three.click(f"{ROW.format('two')} .chat-link")
    three.wait_for_selector("[data-turn=q0]")
    for number, chat in enumerate(("three", "two", "one"), 1):
        three.press(f"{ROW.format(chat)} .chat-link", "Delete")
        three.wait_for_selector(ROW.format(chat), state="detached")
        three.wait_for_selector(
            f"#notice:has-text('{'The chat is' if number == 1 else f'{number} chats are'} deleted')"
        )
    three.click("#notice >> text=Undo")
    three.wait_for_selector(f"{ROW.format('two')}.is-present")
    for chat in ("one", "three"):
        three.wait_for_selector(ROW.format(chat))
    assert not Conversation.objects.exclude(deleted_at=None).exists()


def test_several_chats_are_deleted_and_restored_together(history: Any) -> None:
    history.click(".view-menu summary")
    history.click(".view-menu >> text=Select several")
    for chat in (HAIKU, OLD):
        history.check(f'.chat-pick:has-text("{TITLES[chat]}") input')
    history.click(".picked-bar >> text=Delete")
    history.wait_for_selector(ROW.format(HAIKU), state="detached")
    assert [title for titles in groups(history).values() for title in titles] == [TITLES[INVOICES], TITLES[LISBON]]
    history.click("#notice >> text=Undo")
    history.wait_for_selector(ROW.format(HAIKU))
    history.wait_for_selector(ROW.format(OLD))


def test_arrow_keys_walk_through_the_chats_and_enter_opens_one(history: Any) -> None:
    history.focus("#chat-search")
    for _ in range(3):
        history.keyboard.press("ArrowDown")
    assert history.evaluate("document.activeElement.title") == TITLES[LISBON]
    history.keyboard.press("Enter")
    history.wait_for_url(f"**/c/{LISBON}")


def test_the_search_opens_a_chat_at_the_message(scripted: ScriptedPage) -> None:
    """Accents and case do not matter; the words are marked, and what was found has the focus."""
    keep("ada", "long", "A long one", num_questions=12)
    page = scripted.sign_in()
    page.fill("#chat-search", "CAFE 3")
    page.wait_for_selector(".hit mark")
    assert page.locator(".hit").count() == 1
    assert page.locator(".hit mark").all_text_contents() == ["café", "3"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-turn=q3]:focus")
    scripted.wait_painted()
    box = page.locator("[data-turn=q3]").bounding_box()
    assert 0 < box["y"] < 700
    page.fill("#chat-search", "zebra")
    page.wait_for_selector(".sidebar-empty:has-text('Nothing found')")


def test_a_long_chat_is_drawn_from_its_end_and_opens_at_its_first_message(scripted: ScriptedPage) -> None:
    """500 messages in one frame held the page up for half a second."""
    keep("ada", "long", "A long one", num_questions=60)
    page = scripted.sign_in()
    page.evaluate(
        """() => {
        window.counts = [];
        const count = () => {
            const num = document.querySelectorAll('#messages > li').length;
            if (num && num !== window.counts.at(-1)) window.counts.push(num);
            requestAnimationFrame(count);
        };
        count();
    }"""
    )
    page.fill("#chat-search", "CAFE 0")
    page.wait_for_selector(".hit mark")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-turn=q0]:focus")
    page.wait_for_selector("#messages:not([aria-busy=true])")
    counts = page.evaluate("window.counts")
    assert counts[0] <= 30
    assert counts[-1] == 120
    page.wait_for_selector(".jump")
    assert 0 <= page.locator("[data-turn=q0]").bounding_box()["y"] < 700


def test_markup_in_what_was_found_is_text(scripted: ScriptedPage) -> None:
    keep("ada", "x", "<img src=x onerror=alert(1)> here")
    page = scripted.sign_in()
    page.fill("#chat-search", "here")
    page.wait_for_selector(".hit mark")
    assert page.inner_text(".hit-title") == "<img src=x onerror=alert(1)> here"
    assert page.locator(".sidebar-list img").count() == 0


@pytest.mark.parametrize(
    ("name", "beginning"), [("Markdown", "# Two haikus"), ("JSON", "{"), ("OpenAI JSONL", '{"messages"')]
)
def test_a_chat_is_exported_from_its_menu(history: Any, name: str, beginning: str) -> None:
    act(history, HAIKU, "Export")
    with history.expect_download() as download:
        history.click(f'.popover [role=menuitem]:has(span:text-is("{name}"))')
    assert Path(download.value.path()).read_text().startswith(beginning)


def test_an_import_lists_what_it_does_not_know(scripted: ScriptedPage, tmp_path: Path) -> None:
    line = {"messages": [{"role": "user", "content": "Which tram?", "weight": 1}]}
    (tmp_path / "chats.jsonl").write_text(json.dumps(line))
    text = {
        "author": {"role": "user"},
        "content": {"content_type": "text", "parts": ["Why?", {"content_type": "image"}]},
    }
    chat = {"title": "From afar", "mapping": {"1": {"parent": None, "message": text}}, "current_node": "1"}
    (tmp_path / "conversations.json").write_text(json.dumps([chat]))
    (tmp_path / "other.json").write_text("{}")
    page = scripted.sign_in()
    page.click(".view-menu summary")
    page.click(".view-menu >> text=Import")
    page.set_input_files(
        "#import-files", [tmp_path / "chats.jsonl", tmp_path / "conversations.json", tmp_path / "other.json"]
    )
    page.wait_for_selector("text=2 chats are imported.")
    assert page.locator(".import-unknown li").all_text_contents() == [
        "line 1: messages.0.weight",
        "conversations.0.part image",
    ]
    assert "other.json" in page.inner_text(".dialog .problem")
    page.click(".import-chats >> text=From afar")
    page.wait_for_selector(".message-body:has-text('Why?')")


def test_a_chat_that_is_refused_leaves_out_no_other(scripted: ScriptedPage, tmp_path: Path) -> None:
    """The server takes all chats of a request or none, and those behind a refused one were not sent at all."""
    lines = [json.dumps({"messages": [{"role": "user", "content": f"Question {number}"}]}) for number in range(1, 8)]
    lines[2] = json.dumps({"messages": [{"role": "king", "content": "Question 3"}]})
    lines[4] = json.dumps({"messages": [{"role": "user", "content": "Question 5" + "x" * 1_100_000}]})
    (tmp_path / "chats.jsonl").write_text("\n\n".join(lines))
    message = {"author": {"role": "user"}, "content": {"parts": ["Why?"]}}
    one, two = ({"title": title, "mapping": {"1": {"message": message}}} for title in ("One", "Two"))
    (tmp_path / "conversations.json").write_text(json.dumps([one, 5, two]))
    page = scripted.sign_in()
    page.click(".view-menu summary")
    page.click(".view-menu >> text=Import")
    page.set_input_files("#import-files", [tmp_path / "chats.jsonl", tmp_path / "conversations.json"])
    page.wait_for_selector("text=7 chats are imported.")
    taken = [f"Question {number}" for number in (1, 2, 4, 6, 7)]
    assert page.locator(".import-chats li").all_text_contents() == [*taken, "One", "Two"]
    reasons = page.locator(".dialog .problem").all_text_contents()
    begins = ["chats.jsonl: line 5: messages.0.role must", "chats.jsonl: line 9: The request body is larger"]
    begins.append("conversations.json: chat 2: conversations must be")
    assert all(reason.startswith(begin) for reason, begin in zip(reasons, begins, strict=True))
    scripted.problems[:] = [problem for problem in scripted.problems if "40" not in problem and "413" not in problem]


def test_an_import_ends_where_the_account_is_full(scripted: ScriptedPage, tmp_path: Path, settings: Any) -> None:
    """Each chat behind it was tried, one after the other."""
    settings.LIGHTCONE_CHAT_QUOTA_BYTES = 100_000
    lines = [json.dumps({"messages": [{"role": "user", "content": f"Question {n}" + "x" * 20_000}]}) for n in range(64)]
    (tmp_path / "chats.jsonl").write_text("\n".join(lines))
    page = scripted.sign_in()
    asked: list[str] = []
    page.on("request", lambda request: request.url.endswith("/import") and asked.append(request.url))
    page.click(".view-menu summary")
    page.click(".view-menu >> text=Import")
    page.set_input_files("#import-files", [tmp_path / "chats.jsonl"])
    page.wait_for_selector("text=What stands behind it was not imported.")
    num_taken = Conversation.objects.count()
    assert 1 <= num_taken <= 5
    assert page.locator(".import-chats li").count() == num_taken
    assert page.locator(".dialog .problem").count() == 1
    assert len(asked) < 20
    scripted.problems[:] = [problem for problem in scripted.problems if "429" not in problem and "403" not in problem]


def test_a_link_shows_a_copy_without_an_account_until_it_is_revoked(history: Any, chromium: Any) -> None:
    act(history, HAIKU, "Share")
    history.click("#share-make")
    history.wait_for_selector("text=It is copied, and shown here once.")
    address = history.input_value(".share-address input")
    history.fill("#share-password", "")
    history.press("#share-password", "Control+v")
    assert history.input_value("#share-password") == address
    anybody = chromium.new_context()
    reader = anybody.new_page()
    reader.goto(address)
    assert reader.inner_text("h1") == TITLES[HAIKU]
    assert "The café question 0" in reader.inner_text(".messages")
    reader.wait_for_selector(".message-assistant .is-drawn")
    history.click('.share-link button[aria-label^="Revoke"]')
    history.wait_for_selector(".share-link", state="detached")
    assert reader.reload().status == 404
    assert "shows nothing" in reader.inner_text("h1")
    anybody.close()


def test_a_link_with_a_password_is_read_without_scripts(history: Any, chromium: Any) -> None:
    act(history, HAIKU, "Share")
    history.fill("#share-password", "seven trams")
    history.click("#share-make")
    address = history.input_value(".share-address input")
    assert "with a password" in history.inner_text(".share-foot")
    assert history.input_value("#share-password") == ""
    anybody = chromium.new_context(java_script_enabled=False)
    reader = anybody.new_page()
    reader.goto(address)
    for password, heading in (("another", "A shared chat"), ("seven trams", TITLES[HAIKU])):
        reader.fill("#password", password)
        reader.click("button[type=submit]")
        reader.wait_for_selector(f"h1:text-is('{heading}')")
        assert reader.locator(".alert").count() == (password == "another")
    reader.wait_for_selector(".messages :text('The café question 0')")
    anybody.close()


def test_a_tab_sees_what_is_done_in_another(history: Any) -> None:
    other = history.context.new_page()
    other.goto("/")
    other.wait_for_selector(ROW.format(INVOICES))
    act(other, INVOICES, "Delete")
    history.wait_for_selector(ROW.format(INVOICES), state="detached")
    other.fill("#composer-text", "A new one")
    other.press("#composer-text", "Enter")
    history.wait_for_selector('.chat-link[title="A new one"]')


def test_a_running_answer_is_marked_while_another_chat_is_shown(history: Any) -> None:
    history.fill("#composer-text", "Take your time")
    history.press("#composer-text", "Enter")
    history.wait_for_selector('.chat-link[title="Take your time"]')
    history.click(f"{ROW.format(LISBON)} .chat-link")
    history.wait_for_selector('.chat-link[title="Take your time"] .chat-running')


def test_nobody_sees_the_chats_of_others(scripted: ScriptedPage) -> None:
    keep("bob", "secret", "The café of Bob")
    page = scripted.sign_in("ada")
    page.wait_for_selector("text=No chats yet")
    page.fill("#chat-search", "café")
    page.wait_for_selector(".sidebar-empty:has-text('Nothing found')")
    page.goto("/c/secret")
    page.wait_for_selector("#notice.is-problem")
    scripted.problems[:] = [problem for problem in scripted.problems if "404" not in problem]


def test_on_a_phone_the_list_is_a_drawer_that_closes_with_a_choice(history: Any) -> None:
    history.set_viewport_size({"width": 390, "height": 844})
    history.click("#sidebar-toggle")
    history.wait_for_selector("#sidebar-close:focus")
    assert history.evaluate("document.querySelector('.column').inert")
    history.keyboard.press("Escape")
    history.wait_for_selector("#sidebar-toggle:focus")
    history.click("#sidebar-toggle")
    history.click(f"{ROW.format(LISBON)} .chat-link")
    history.wait_for_selector(".sidebar", state="detached")
    history.wait_for_selector("[data-turn=q0]")


def test_what_cannot_be_read_says_so_and_is_tried_again(scripted: ScriptedPage) -> None:
    keep("ada", HAIKU, TITLES[HAIKU])
    page = scripted.page
    error = json.dumps({"error": {"message": "The database is away.", "code": "overloaded"}})
    page.route(
        "**/playground/api/conversations?*",
        lambda route: route.fulfill(status=503, body=error, content_type="application/json"),
    )
    scripted.sign_in()
    page.wait_for_selector(".sidebar-failure:has-text('The database is away.')")
    page.unroute("**/playground/api/conversations?*")
    page.click(".sidebar-failure >> text=Try again")
    page.wait_for_selector(ROW.format(HAIKU))
    scripted.problems[:] = [problem for problem in scripted.problems if "503" not in problem]


@pytest.mark.parametrize("may_read", [True, False])
def test_people_are_told_where_administrators_may_read_their_chats(
    scripted: ScriptedPage, settings: Any, may_read: bool
) -> None:
    settings.LIGHTCONE_CHAT_ADMIN_READ = may_read
    page = scripted.sign_in()
    page.wait_for_selector("#sidebar")
    assert page.locator("#sidebar >> text=Administrators can read chats here.").count() == may_read
