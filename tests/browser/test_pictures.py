"""Images that go with a message: how they come in, what is shown and sent of them, and which models take them."""

from __future__ import annotations

import base64
import json
import wave
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from PIL import Image

from chat.catalog.models import ServedModel
from chat.catalog.services import model_register, models_cache_clear
from chat.conversations.models import ChatFile, Draft
from chat.conversations.transfer import conversations_import
from tests.browser.compared import COMPARE, answered, asked
from tests.browser.scripted import MESSAGE, ScriptedPage
from tests.browser.stub_routes import rendered
from tests.browser.walk import Walk

pytestmark = [pytest.mark.browser, pytest.mark.slow]

QUESTION, ANSWER = MESSAGE.format(1), MESSAGE.format(2)
DRAFTED = "#composer .picture"
GIVE = """([kind, target, name, data]) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], name, { type: "image/png" }));
    const more = { bubbles: true, cancelable: true };
    const event = kind === "drop" ? new DragEvent(kind, { dataTransfer: transfer, ...more })
        : new ClipboardEvent(kind, { clipboardData: transfer, ...more });
    document.querySelector(target).dispatchEvent(event);
}"""


def picture(width: int = 320, height: int = 200, form: str = "PNG", mode: str = "RGB") -> bytes:
    """Return an image that is no single colour."""
    made = Image.linear_gradient("L").resize((width, height))
    bands = [made, made.rotate(180), made.transpose(Image.Transpose.FLIP_LEFT_RIGHT), made][: len(mode)]
    buffer = BytesIO()
    Image.merge(mode, bands).save(buffer, form)
    return buffer.getvalue()


def silence() -> bytes:
    """Return half a second of it."""
    file = BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 16_000, 0, "NONE", ""))
        sound.writeframes(bytes(16_000))
    return file.getvalue()


@pytest.fixture
def sees(people: None) -> None:
    model_register(name="seeing", path="/models/seeing")
    ServedModel.objects.filter(name="seeing").update(modalities=["image"])
    models_cache_clear()


@pytest.fixture
def page(sees: None, scripted: ScriptedPage) -> Any:
    page = scripted.sign_in()
    scripted.pick_model("seeing")
    return page


def pick(page: Any, name: str, content: bytes, mime_type: str = "image/png") -> None:
    with page.expect_file_chooser() as chooser:
        page.click("[aria-label='Attach images and files']")
    chooser.value.set_files([{"name": name, "mimeType": mime_type, "buffer": content}])
    page.wait_for_selector(f"{DRAFTED}:has-text('{name}')")


def is_drawn(page: Any, selector: str) -> bool:
    """Return True once the image has come."""
    return bool(page.evaluate("(at) => document.querySelector(at)?.naturalWidth > 0", selector))


def reference() -> str:
    return f"attachment:{ChatFile.objects.get().public_id}"


@pytest.mark.parametrize(
    ("kind", "target"), [("paste", "#composer-text"), ("drop", "#composer-text"), ("drop", "#conversation")]
)
def test_an_image_comes_in_and_is_shown_again_everywhere(
    scripted: ScriptedPage, page: Any, kind: str, target: str
) -> None:
    content = picture()
    page.evaluate(GIVE, [kind, target, "cat.png", base64.b64encode(content).decode()])
    page.wait_for_selector(f"{DRAFTED}:has-text('320 × 200')")
    request = scripted.turn("What is it?", "A gradient.")
    part = {"type": "image_url", "image_url": {"url": reference()}}
    assert request["messages"] == [{"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}]
    assert bytes(ChatFile.objects.get().content) == content
    assert page.locator(DRAFTED).count() == 0
    page.reload()
    shown = f"{QUESTION} img[alt='cat.png']"
    scripted.wait_for(lambda: is_drawn(page, shown))
    page.click(f"{QUESTION} .picture-open")
    page.wait_for_selector("dialog img[alt='cat.png']")
    assert page.get_attribute("dialog a[download]", "download") == "cat.png"
    page.keyboard.press("Escape")
    page.click(f"{ANSWER} [aria-label='Regenerate']")
    assert scripted.answer("A picture.")["messages"] == request["messages"]
    assert scripted.turn("And now?", "The same.")["messages"][0] == request["messages"][0]
    page.click(f"{QUESTION} [aria-label='Edit']")
    page.fill(".edit-form textarea", "Is it a cat?")
    page.click("text=Save & send")
    assert scripted.answer("No.")["messages"][0]["content"] == [part, {"type": "text", "text": "Is it a cat?"}]


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_where_a_photo_was_taken_stays_with_who_took_it(scripted: ScriptedPage, page: Any, form: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # it lies on its side
    exif[0x010F] = "camera of a test"
    buffer = BytesIO()
    Image.open(BytesIO(picture())).save(buffer, form, exif=exif)
    assert b"camera of a test" in buffer.getvalue()
    pick(page, "photo", buffer.getvalue(), f"image/{form.lower()}")
    page.wait_for_selector(f"{DRAFTED}:has-text('200 × 320')")
    scripted.turn("What is it?", "A gradient.")
    kept = bytes(ChatFile.objects.get().content)
    assert b"camera of a test" not in kept
    assert Image.open(BytesIO(kept)).size == (200, 320)


def test_text_of_an_office_program_stays_text(page: Any) -> None:
    """Spreadsheets copy a picture of their cells beside the text."""
    page.evaluate(
        """() => {
            const clipboardData = new DataTransfer();
            clipboardData.setData("text/plain", "a b");
            clipboardData.setData("text/html", "<table></table>");
            clipboardData.items.add(new File(["x"], "image.png", { type: "image/png" }));
            const event = new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true });
            window.isTaken = !document.querySelector("#composer-text").dispatchEvent(event);
        }"""
    )
    assert page.evaluate("window.isTaken") is False
    assert page.locator("#composer .files").count() == 0


def test_a_photo_is_made_smaller_and_says_so(scripted: ScriptedPage, page: Any) -> None:
    pick(page, "photo.jpg", picture(4032, 3024, "JPEG"), "image/jpeg")
    assert "4032 × 3024 → 2048 × 1536" in page.inner_text(DRAFTED)
    with Image.open(BytesIO(bytes(ChatFile.objects.get().content))) as kept:
        assert (kept.format, kept.size) == ("JPEG", (2048, 1536))


def test_what_can_be_seen_through_stays_so_and_other_formats_are_written_anew(page: Any) -> None:
    pick(page, "clear.png", picture(3000, 100, "PNG", "RGBA"))
    pick(page, "old.bmp", picture(64, 64, "BMP"), "image/bmp")
    page.wait_for_selector(f"{DRAFTED}:has-text('64 × 64')")
    formats = []
    for file in ChatFile.objects.order_by("pk"):
        with Image.open(BytesIO(bytes(file.content))) as kept:
            formats.append((kept.format, kept.mode))
    assert formats == [("WEBP", "RGBA"), ("JPEG", "RGB")]


def test_what_is_no_image_for_the_browser_is_named(page: Any) -> None:
    with page.expect_file_chooser() as chooser:
        page.click("[aria-label='Attach images and files']")
    chooser.value.set_files([{"name": "a.heic", "mimeType": "image/heic", "buffer": b"\0\0\0\x18ftypheic"}])
    page.wait_for_selector("#notice.is-problem:has-text('a.heic is no image that this browser can read')")
    assert page.locator(DRAFTED).count() == 0


def test_an_image_is_sent_in_the_size_that_is_chosen(scripted: ScriptedPage, page: Any) -> None:
    pick(page, "photo.jpg", picture(4032, 3024, "JPEG"), "image/jpeg")
    for side, size in (("512", "4032 × 3024 → 512 × 384"), ("1024", "1024 × 768"), ("256", "256 × 192")):
        page.click("[aria-label='Size of photo.jpg']")
        page.click(f".menu-act:has-text('{side} pixels')")
        page.wait_for_selector(f"{DRAFTED}:has-text('{size}')")
    page.fill("#composer-text", "What is it?")
    user = get_user_model().objects.get(username="ada")
    scripted.wait_for(Draft.objects.filter(user=user, text__contains="What is it?").exists)
    page.evaluate("sessionStorage.clear()")
    page.reload()
    page.wait_for_selector(f"{DRAFTED}:has-text('256 × 192')")
    assert page.locator("[aria-label='Size of photo.jpg']").count() == 0, "what is kept is not made larger"
    page.click("#send")
    sent = scripted.answer("A gradient.")["messages"][0]["content"][0]["image_url"]["url"]
    assert Image.open(
        BytesIO(bytes(ChatFile.objects.get(public_id=sent.removeprefix("attachment:")).content))
    ).size == (256, 192)


def test_a_draft_keeps_its_images_until_they_are_removed(scripted: ScriptedPage, page: Any) -> None:
    pick(page, "cat.png", picture())
    page.fill("#composer-text", "What is it?")
    user = get_user_model().objects.get(username="ada")
    scripted.wait_for(Draft.objects.filter(user=user, text__contains="What is it?").exists)
    page.evaluate("sessionStorage.clear()")
    page.reload()
    scripted.wait_for(lambda: is_drawn(page, f"{DRAFTED} img"))
    page.focus("[aria-label='Remove cat.png']")
    page.keyboard.press("Enter")
    assert page.locator(DRAFTED).count() == 0


def test_a_model_that_does_not_see_is_not_asked(scripted: ScriptedPage, page: Any) -> None:
    pick(page, "cat.png", picture())
    scripted.pick_model("plain")
    line = "#misfit:has-text('plain does not take images. These do:')"
    page.wait_for_selector(line)
    assert page.get_attribute("#send", "title") == "plain does not take images."
    scripted.ask("What is it?")
    assert page.get_attribute("#send", "aria-disabled") == "true"
    assert page.input_value("#composer-text") == "What is it?"
    page.click("#misfit >> text=seeing")
    page.wait_for_selector(line, state="detached")
    page.click("#send")
    scripted.answer("A gradient.")
    scripted.pick_model("plain")
    page.wait_for_selector("#misfit:has-text('This chat has images, which plain does not take.')")


def test_more_images_than_a_request_takes_are_not_sent(page: Any) -> None:
    for number in range(9):
        pick(page, f"{number}.png", picture(10 + number, 10))
    page.wait_for_selector("#misfit:has-text('A request takes 8 files of a kind')")
    assert page.get_attribute("#send", "aria-disabled") == "true"


def test_compared_models_all_have_to_see(scripted: ScriptedPage, page: Any) -> None:
    """The press that names a seeing model has every pane use it."""
    page.click(COMPARE)
    page.wait_for_selector("#pane-2")
    pick(page, "cat.png", picture())
    page.wait_for_selector("#misfit:has-text('does not take images. These do:')")
    page.click("#misfit >> text=seeing")
    page.wait_for_selector("#misfit", state="detached")
    starts = asked(scripted, "What is it?")
    part = {"type": "image_url", "image_url": {"url": reference()}}
    assert [start["request"]["model"] for start in starts] == ["seeing", "seeing"]
    assert all(start["request"]["messages"][0]["content"][0] == part for start in starts)
    answered(scripted, starts, "A gradient.", "A picture.")
    assert is_drawn(page, "#pane-2 .picture img")


def test_a_temporary_chat_stores_no_image(scripted: ScriptedPage, page: Any) -> None:
    page.click(".account summary")
    page.click("text=New temporary chat")
    scripted.pick_model("seeing")
    pick(page, "photo.jpg", picture(4032, 3024, "JPEG"), "image/jpeg")
    assert "→ 1024 × 768" in page.inner_text(DRAFTED)
    url = scripted.turn("What is it?", "A gradient.")["messages"][0]["content"][0]["image_url"]["url"]
    assert url.startswith("data:image/jpeg;base64,")
    assert is_drawn(page, f"{QUESTION} img")
    assert not ChatFile.objects.exists()


def test_an_image_that_is_gone_says_so(scripted: ScriptedPage, page: Any) -> None:
    pick(page, "cat.png", picture())
    scripted.turn("What is it?", "A gradient.")
    ChatFile.objects.all().delete()
    page.reload()
    page.wait_for_selector(f"{QUESTION} .picture-gone:has-text('cat.png is not there any more.')")
    scripted.problems[:] = [problem for problem in scripted.problems if "404" not in problem]


def test_nothing_is_shown_from_an_address_that_a_chat_names(scripted: ScriptedPage, page: Any) -> None:
    """An imported chat could have the page ask for any path of this server, and link to any script."""
    shown = """async (urls) => {
        const { sourceOf } = await import('/static/chat/playground/app/core/attached.js');
        return urls.map((url) => sourceOf({ url, kind: "image_url", num_bytes: 0 }) ?? null);
    }"""
    inline = "data:image/png;base64,AAAA"
    others = ["javascript:alert(1)", "/sign-out", "https://example.com/a.png", "attachment:../draft", "attachment:", ""]
    assert page.evaluate(shown, ["attachment:a1", inline, *others]) == ["/playground/api/files/a1", inline] + [None] * 6
    part = {"type": "image_url", "image_url": {"url": "/sign-out"}, "attachment": "cat.png"}
    turn = {"id": "1", "parent": "", "role": "user", "state": "ended", "content": [part]}
    chat = {"object": "lightcone.conversation", "title": "A chat", "turns": [turn], "head": "1"}
    user = get_user_model().objects.get(username="ada")
    made = conversations_import(user_id=user.pk, format_name="lightcone", text=json.dumps(chat)).conversations[0]
    page.goto(f"/c/{made.public_id}")
    page.wait_for_selector(f"{QUESTION} .picture-gone:has-text('cat.png')")


MICROPHONE = """() => {
    navigator.mediaDevices.getUserMedia = async () => {
        const context = new AudioContext();
        const tone = new OscillatorNode(context);
        const heard = new MediaStreamAudioDestinationNode(context);
        tone.connect(heard);
        tone.start();
        return heard.stream;
    };
}"""
"""A machine of tests has no microphone: one that hears a tone."""


def test_sound_is_recorded_and_played_where_the_model_hears(scripted: ScriptedPage, page: Any) -> None:
    record = "#composer [aria-label='Record sound']"
    assert page.locator(record).count() == 0
    ServedModel.objects.filter(name="seeing").update(modalities=["image", "audio"])
    models_cache_clear()
    page.reload()
    page.evaluate(MICROPHONE)
    page.click(record)
    page.wait_for_selector("#composer .recording:has-text('0:01')")
    page.click("#composer [aria-label='Stop recording']")
    page.wait_for_selector("#composer .sound:has-text('Recording')")
    content = bytes(ChatFile.objects.get().content)
    with wave.open(BytesIO(content)) as sound:
        assert (sound.getnchannels(), sound.getframerate(), sound.getsampwidth()) == (1, 16_000, 2)
        assert sound.getnframes() > 8_000
        assert any(sound.readframes(sound.getnframes())), "a tone, and no silence"
    message = scripted.turn("What is it?", "A tone.")["messages"][0]
    assert message["content"][0] == {"type": "input_audio", "input_audio": {"data": reference(), "format": "wav"}}
    page.reload()
    player = f"{QUESTION} .sound audio"
    scripted.wait_for(lambda: page.evaluate("(at) => document.querySelector(at)?.duration > 0.5", player))
    scripted.pick_model("plain")
    page.wait_for_selector("#misfit:has-text('This chat has sound, which plain does not take.')")


SLOW_MICROPHONE = """() => {
    window.streams = [];
    const { promise, resolve } = Promise.withResolvers();
    window.allow = resolve;
    navigator.mediaDevices.getUserMedia = async () => {
        const heard = new MediaStreamAudioDestinationNode(new AudioContext());
        window.streams.push(heard.stream);
        await promise;
        return heard.stream;
    };
}"""
"""One whose browser asks first whether the page may use it, until `allow` is called."""
TRACKS = "() => window.streams.flatMap((stream) => stream.getTracks().map((track) => track.readyState))"


@pytest.fixture
def asked_for_sound(page: Any) -> Any:
    """The page while the browser asks for the microphone, after a press on the button."""
    ServedModel.objects.filter(name="seeing").update(modalities=["image", "audio"])
    models_cache_clear()
    page.reload()
    page.evaluate(SLOW_MICROPHONE)
    page.click("#composer [aria-label='Record sound']")
    assert page.evaluate(TRACKS) == ["live"]
    return page


def test_a_second_press_while_the_browser_asks_starts_no_second_recording(
    scripted: ScriptedPage, asked_for_sound: Any
) -> None:
    """The first one could not be stopped, and held the microphone."""
    page = asked_for_sound
    page.click("#composer [aria-label='Record sound']")
    page.evaluate("window.allow()")
    page.wait_for_selector("#composer .recording")
    assert page.evaluate(TRACKS) == ["live"]
    page.click("#composer [aria-label='Stop recording']")
    scripted.wait_for(lambda: page.evaluate(TRACKS) == ["ended"])


def test_a_microphone_that_is_allowed_too_late_is_let_go(scripted: ScriptedPage, asked_for_sound: Any) -> None:
    page = asked_for_sound
    scripted.pick_model("plain")
    page.wait_for_selector("#composer [aria-label='Record sound']", state="detached")
    page.evaluate("window.allow()")
    scripted.wait_for(lambda: page.evaluate(TRACKS) == ["ended"])


@pytest.mark.parametrize("hears", [True, False], ids=["heard", "written down"])
def test_media_are_counted_before_they_are_sent_but_not_what_is_written_down(
    scripted: ScriptedPage, page: Any, hears: bool
) -> None:
    """No byte of the request says what media take; a transcript for it would cost what an answer does."""
    model_register(name="whisper", path="/models/whisper")
    changes = {"modalities": ["image", "audio"]} if hears else {"transcriber": "whisper"}
    ServedModel.objects.filter(name="seeing").update(**changes)
    models_cache_clear()
    page.reload()
    scripted.turn("hello", "yes")
    counted: list[Any] = []

    def count(route: Any) -> None:
        counted.append(route.request.post_data_json)
        route.fulfill(json=rendered(1000))

    page.route("**/playground/api/render", count)
    pick(page, "cat.png", picture())
    scripted.turn("What is it?", "A gradient.")
    assert counted[-1]["request"]["messages"][-1]["content"][0]["type"] == "image_url"
    del counted[:]
    with page.expect_file_chooser() as chooser:
        page.click("[aria-label='Attach images and files']")
    chooser.value.set_files([{"name": "tone.wav", "mimeType": "audio/wav", "buffer": silence()}])
    page.wait_for_selector("#composer .sound")
    scripted.turn("And that?", "Nothing.")
    assert [one["request"]["messages"][-1]["content"][0]["type"] for one in counted][-1:] == ["input_audio"] * hears


def test_a_microphone_that_may_not_be_used_is_explained(scripted: ScriptedPage, page: Any) -> None:
    ServedModel.objects.filter(name="seeing").update(modalities=["audio"])
    models_cache_clear()
    page.reload()
    refuse = "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotAllowedError'); }"
    page.evaluate(f"() => {{ {refuse} }}")
    page.click("#composer [aria-label='Record sound']")
    page.wait_for_selector("#notice.is-problem:has-text('does not let this page use the microphone')")
    assert page.locator("#composer [aria-label='Record sound']").count() == 1


def test_no_state_with_files_has_a_finding(sees: None, walk: Walk) -> None:
    ServedModel.objects.filter(name="seeing").update(modalities=["image", "audio"])
    models_cache_clear()
    walk.sign_in()
    page = walk.page
    walk.scripted.pick_model("seeing")
    pick(page, "a-photo-with-a-long-name.jpg", picture(400, 300, "JPEG"), "image/jpeg")
    with page.expect_file_chooser() as chooser:
        page.click("[aria-label='Attach images and files']")
    files = {"plan.pdf": b"%PDF-\xff", "tone.wav": silence(), "a.txt": b"one"}
    chooser.value.set_files([{"name": name, "mimeType": "", "buffer": content} for name, content in files.items()])
    walk.look("being read", "#composer .chip:has-text('a.txt')")
    page.wait_for_selector("#composer .is-pending", state="detached")
    walk.look("written", "#composer .sound")
    run = walk.ask()
    walk.scripted.say(run, "A gradient.")
    walk.end(run)
    walk.look("asked", f"{QUESTION} .sound")
    walk.peek("large", "dialog img", f"{QUESTION} .picture-open")
    page.click(f"{QUESTION} [aria-label='Edit']")
    walk.look("edited", ".edit-form .picture")
    walk.scripted.pick_model("plain")
    walk.look("of a model without eyes", "#misfit")
    assert walk.findings == []
