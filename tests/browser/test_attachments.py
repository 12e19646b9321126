"""Text files that go with a message: how they come in, what is shown of them, and which cannot be taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from chat.conversations.models import ChatFile, Draft, Turn
from chat.conversations.sharing import link_create
from tests.browser.scripted import MESSAGE, ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME, HOSTILE = "plans.html", "<img src=x onerror=window.hit=1>\n<script>window.hit=1</script>"
CHIPS = "#composer .files .chip"
QUESTION, ANSWER = MESSAGE.format(1), MESSAGE.format(2)
GIVE = """([kind, name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name));
    const more = { bubbles: true, cancelable: true };
    const event = kind === "drop" ? new DragEvent(kind, { dataTransfer: data, ...more })
        : new ClipboardEvent(kind, { clipboardData: data, ...more });
    document.querySelector("#composer-text").dispatchEvent(event);
}"""


@pytest.fixture
def page(scripted: ScriptedPage) -> Any:
    return scripted.sign_in()


def pick(page: Any, *files: tuple[str, str | bytes]) -> None:
    """Choose files after a press on the clip."""
    with page.expect_file_chooser() as chooser:
        page.click("[aria-label='Attach images and files']")
    chosen = [(name, text.encode() if isinstance(text, str) else text) for name, text in files]
    chooser.value.set_files([{"name": name, "mimeType": "text/plain", "buffer": text} for name, text in chosen])


def attach(page: Any, way: str, name: str, text: str) -> None:
    if way == "pick":
        pick(page, (name, text))
    else:
        page.evaluate(GIVE, [way, name, text])
    page.wait_for_selector(f"{CHIPS}:has-text('{name}')")


def part(name: str, text: str) -> dict[str, str]:
    return {"type": "text", "text": f"{name}:\n\n{text}"}


@pytest.mark.parametrize("way", ["pick", "drop", "paste"])
def test_a_file_is_shown_before_and_after_it_is_sent(scripted: ScriptedPage, page: Any, way: str) -> None:
    """Nothing but its name was shown before, and all of its text in the sent message."""
    attach(page, way, NAME, HOSTILE)
    for place in ("#composer", QUESTION):
        assert page.inner_text(f"{place} .files .chip").split() == [NAME, "62", "B"]
        page.click(f"{place} .file-open")
        page.wait_for_selector(f"dialog:has-text('{NAME}')")
        assert page.text_content("dialog pre") == HOSTILE
        page.keyboard.press("Escape")
        page.wait_for_selector(f"{place} .file-open:focus")
        if place == "#composer":
            request = scripted.turn("What is it?", "A page.")
    assert request["messages"][0]["content"] == [part(NAME, HOSTILE), {"type": "text", "text": "What is it?"}]
    assert page.locator(CHIPS).count() == 0
    page.reload()
    page.wait_for_selector(ANSWER)
    assert page.inner_text(f"{QUESTION} .files .chip").split() == [NAME, "62", "B"]
    assert scripted.texts() == ["What is it?", "A page."]
    assert page.evaluate("window.hit") is None


def test_of_a_long_file_the_beginning_is_shown(page: Any) -> None:
    attach(page, "pick", "long.txt", "x" * 20_000 + "y" * 1234)
    assert "21.2 kB" in page.inner_text(CHIPS)
    page.click(f"{CHIPS} .file-open")
    assert page.text_content("dialog pre") == "x" * 20_000
    assert "1,234 more characters" in page.inner_text("dialog")


def test_a_file_can_be_sent_alone_and_taken_back_before(scripted: ScriptedPage, page: Any) -> None:
    pick(page, ("a.txt", "one"), ("b.txt", "two"))
    page.click("[aria-label='Remove a.txt']")
    page.click("#send")
    assert scripted.answer("Yes.")["messages"][0]["content"] == [part("b.txt", "two")]
    assert page.inner_text(f"{QUESTION} .files .chip").split() == ["b.txt", "3", "B"]
    assert scripted.texts() == ["Yes."]


@pytest.mark.parametrize(
    ("files", "num_taken", "words"),
    [
        (
            [("big.pdf", b"%PDF-\xff" + b"x" * 2**20 * 10), ("good.txt", "")],
            1,
            "big.pdf has 10.5 MB; a file of a message",
        ),
        ([("cat.png", b"\x89PNG\xff\xfe")], 0, "cat.png cannot be read: attach text, PDF"),
        ([("nul.bin", b"a\0b")], 0, "nul.bin cannot be read"),
        ([(f"{number}.txt", "x") for number in range(21)], 20, "20.txt was left out: a message takes 20 files."),
    ],
)
def test_what_cannot_be_taken_is_named_and_the_others_stay(
    page: Any, files: list[tuple[str, str | bytes]], num_taken: int, words: str
) -> None:
    pick(page, *files)
    page.wait_for_selector(f"#notice.is-problem:has-text('{words}')")
    assert page.locator(CHIPS).count() == num_taken


def test_a_document_is_sent_as_a_file_and_shown_by_name_and_size(scripted: ScriptedPage, page: Any) -> None:
    """A long text is one too: as a part of the message it would be more than the page may save."""
    document = b"%PDF-1.7\n\xff" + b"x" * 990
    pick(page, ("plan.pdf", document), ("short.csv", "a,b"), ("long.csv", "a,b\n" * 60_000))
    page.wait_for_selector(f"{CHIPS}:has-text('240 kB')")
    assert [chip.split() for chip in page.locator(CHIPS).all_inner_texts()] == [
        ["plan.pdf", "1", "kB"],
        ["short.csv", "3", "B"],
        ["long.csv", "240", "kB"],
    ]
    first, second = ChatFile.objects.order_by("pk")
    sent = [
        {"type": "file", "file": {"file_data": f"attachment:{first.public_id}", "filename": "plan.pdf"}},
        part("short.csv", "a,b"),
        {"type": "file", "file": {"file_data": f"attachment:{second.public_id}", "filename": "long.csv"}},
        {"type": "text", "text": "What is it?"},
    ]
    assert scripted.turn("What is it?", "A plan.")["messages"][0]["content"] == sent
    page.reload()
    page.wait_for_selector(f"{QUESTION} .chip:has-text('long.csv')")
    with page.expect_download() as saved:
        page.click(f"{QUESTION} .chip:has-text('plan.pdf') a")
    assert saved.value.suggested_filename == "plan.pdf"
    assert saved.value.path().read_bytes() == document


def test_files_of_two_quick_drops_count_together(page: Any) -> None:
    """Each drop counted the files that were there when it came, so that two of them passed the limit."""
    page.evaluate(
        """() => {
            for (const drop of ["a", "b"]) {
                const dataTransfer = new DataTransfer();
                for (let n = 0; n < 12; n += 1) dataTransfer.items.add(new File(["x"], `${drop}${n}.txt`));
                const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
                document.querySelector("#composer-text").dispatchEvent(event);
            }
        }"""
    )
    page.wait_for_selector("#notice.is-problem:has-text('b8.txt was left out: a message takes 20 files.')")
    names = page.locator(f"{CHIPS} .file-name").all_inner_texts()
    assert names == [f"a{n}.txt" for n in range(12)] + [f"b{n}.txt" for n in range(8)]


def test_an_edited_question_keeps_the_files_that_are_not_taken_out(scripted: ScriptedPage, page: Any) -> None:
    """The form had the text of the files too, and made it a part of what was typed."""
    pick(page, ("a.txt", "one"), ("b.txt", "two"))
    page.wait_for_selector(f"{CHIPS} >> nth=1")
    scripted.turn("And?", "Yes.")
    page.click(f"{QUESTION} [aria-label='Edit']")
    assert page.input_value(".edit-form textarea") == "And?"
    page.click(".edit-form [aria-label='Remove a.txt']")
    page.fill(".edit-form textarea", "And now?")
    page.reload()
    page.wait_for_selector(".edit-form textarea")
    assert page.locator(".edit-form .chip").count() == 1
    page.click("text=Save & send")
    content = [part("b.txt", "two"), {"type": "text", "text": "And now?"}]
    assert scripted.answer("Yes.")["messages"] == [{"role": "user", "content": content}]
    page.click("[aria-label='Earlier version']")
    assert page.locator(f"{QUESTION} .chip").count() == 2


def test_an_edit_is_kept_without_a_copy_of_the_files_that_stay(scripted: ScriptedPage, page: Any) -> None:
    """Each key in the form kept all files again, and large ones kept the draft from other devices."""
    attach(page, "pick", "a.txt", "x" * 150_000)
    attach(page, "pick", "b.txt", "y" * 150_000)
    scripted.turn("And?", "Yes.")
    page.click(f"{QUESTION} [aria-label='Edit']")
    page.fill(".edit-form textarea", "And now?")
    user = get_user_model().objects.get(username="ada")
    scripted.wait_for(Draft.objects.filter(user=user, text__contains="And now?").exists)
    page.reload()
    page.wait_for_selector(".edit-form .chip:has-text('b.txt')")
    assert page.input_value(".edit-form textarea") == "And now?"
    assert page.locator(".edit-form .chip").count() == 2


def test_a_link_to_a_chat_shows_no_attached_file(scripted: ScriptedPage, page: Any) -> None:
    """The text of the file was in the public copy, although the page said that attachments are left out."""
    attach(page, "pick", "plans.txt", "confidential")
    scripted.turn("What is it?", "A plan.")
    turn = Turn.objects.get(role="user")
    assert json.loads(turn.body)["content"][0] == part("plans.txt", "confidential") | {"attachment": "plans.txt"}
    user = get_user_model().objects.get(username="ada")
    made = link_create(user_id=user.pk, conversation_id=turn.conversation.public_id, lives_s=None)
    page.goto(f"/shared/{made.token}")
    text = page.inner_text("body")
    assert "What is it?" in text
    assert "A plan." in text
    assert "confidential" not in text
    assert "plans.txt" not in text


def test_files_of_an_older_question_are_known_by_how_they_begin(scripted: ScriptedPage, page: Any) -> None:
    scripted.turn("What is it?", "A plan.")
    turn = Turn.objects.get(role="user")
    old = [part("plans.txt", "one"), {"type": "text", "text": "What is it?"}]
    Turn.objects.filter(pk=turn.pk).update(body=json.dumps(json.loads(turn.body) | {"content": old}))
    page.reload()
    page.wait_for_selector(f"{QUESTION} .chip:has-text('plans.txt')")
    assert scripted.texts() == ["What is it?", "A plan."]
    assert scripted.turn("And?", "Yes.")["messages"][0]["content"] == old
