"""What a team does in the console from its first day on, over a started server, in the order in which it is done."""

from __future__ import annotations

import csv
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import httpx
import pytest

from chat.catalog.model_choice import model_choice
from tests.browser.conftest import signed_in_page
from tests.browser.scripted import note_problems, until_connected
from tests.served import ServedLightcone

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.live]

PASSWORD = "a-long-passphrase-0"  # noqa: S105
SAVE = "[name=_save]"
NEW_KEY = "#new-key"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    """A Lightcone of its own: its usage is counted, and its first steps are taken."""
    one = ServedLightcone(tmp_path_factory.mktemp("journeys"))
    with one.running():
        yield one


@pytest.fixture(scope="module")
def problems() -> list[str]:
    return []


@pytest.fixture(scope="module")
def owner(chromium: Any, served: ServedLightcone, problems: list[str]) -> Iterator[Any]:
    """The page of the installation's owner. Errors in its console fail the test that sees them."""
    page = signed_in_page(chromium, served, problems)
    yield page
    page.context.close()


@pytest.fixture
def console(owner: Any, problems: list[str]) -> Iterator[Any]:
    yield owner
    assert problems == []


def made_key(page: Any, name: str, **fields: str) -> str:
    """Make a key in the console, with these fields of its form, and return its text."""
    page.goto("/admin/chat/apikey/add/")
    page.fill("[name=name]", name)
    for field, value in fields.items():
        page.fill(f"[name={field}]", value)
    page.click(SAVE)
    text: str = page.inner_text(NEW_KEY)
    return text


class App:
    """A program of the team, with one key."""

    def __init__(self, served: ServedLightcone, key: str) -> None:
        self.model = served.model
        self.key_id = key.split("_")[1]
        self.num_asked = 0
        headers = {"Authorization": f"Bearer {key}"}
        self.client = httpx.Client(base_url=served.base_url, headers=headers, timeout=180)

    def ask(self, text: str = "Say hello.", **fields: Any) -> httpx.Response:
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 4}
        self.num_asked += 1
        return self.client.post("/v1/chat/completions", json=body | fields)

    def refusal(self, **fields: Any) -> str:
        """Return the sentence with which one of a few requests is refused for a limit.

        What a prompt counts is known once it has been computed, so the one that goes beyond a limit is answered.
        """
        for _ in range(4):
            answer = self.ask(**fields)
            if answer.status_code in (400, 429):
                return str(answer.json()["error"]["message"])
        raise AssertionError(answer.text)


def logged(page: Any, app: App) -> Any:
    """Open the page of the newest request of a program, once all of its requests are in the log.

    The log is written behind the answers.
    """
    rows = page.locator("#result_list tbody tr", has_text=app.key_id)
    page.goto("/admin/chat/requestlog/")
    while rows.count() < app.num_asked:
        page.reload()
    rows.first.get_by_role("link").first.click()
    page.wait_for_url("**/change/**")
    return page


def test_the_first_steps_tick_themselves_off(console: Any, served: ServedLightcone) -> None:
    console.goto("/admin/")
    steps = console.locator(".lc-guide li")
    assert steps.count() == 4
    before = console.locator(".lc-guide .lc-done").count()
    app = App(served, made_key(console, "first steps"))
    assert app.ask().status_code == 200
    done = console.locator(".lc-guide .lc-done")
    while done.count() == before:
        console.reload()


@pytest.fixture(scope="module")
def bob(chromium: Any, served: ServedLightcone, owner: Any, problems: list[str]) -> Iterator[Any]:
    """The page of a person who came by an invitation."""
    owner.goto("/admin/chat/invitation/add/")
    owner.fill("[name=email]", "bob@example.com")
    owner.select_option("[name=role]", "member")
    owner.locator("[name=projects]").first.check()
    owner.click(SAVE)
    link = owner.inner_text("#new-link")
    context = chromium.new_context(base_url=served.base_url, viewport={"width": 390, "height": 844})
    page = context.new_page()
    note_problems(page, problems)
    page.goto(link)
    page.fill("#id_username", "bob")
    page.fill("#id_password1", PASSWORD)
    page.fill("#id_password2", PASSWORD)
    page.click("form.card-form button[type=submit]")
    until_connected(page, problems)
    yield page
    context.close()


@contextmanager
def asking(app: App, **fields: Any) -> Iterator[list[httpx.Response]]:
    """Ask again and again meanwhile, so that a page sees a run whenever it looks, on a fast machine too.

    Yields the answers, all of which are there at the end.
    """
    answers: list[httpx.Response] = []
    is_over = threading.Event()

    def ask_on() -> None:
        while not is_over.is_set():
            answers.append(app.ask(**fields))

    thread = threading.Thread(target=ask_on, daemon=True)
    thread.start()
    try:
        yield answers
    finally:
        is_over.set()
        thread.join(180)


def test_a_key_of_an_invited_person_is_seen_live_in_log_usage_and_audit(
    console: Any, bob: Any, served: ServedLightcone
) -> None:
    app = App(served, made_key(bob, "bobs-script"))
    console.goto("/admin/workers/")
    console.locator(".lc-live-bar[data-state=live]").wait_for()
    with asking(app, max_tokens=400, ignore_eos=True) as answers:
        console.locator("[data-key=runs] tbody tr").wait_for()
    made = [answer.json()["usage"]["completion_tokens"] for answer in answers]

    page = logged(console, app)
    assert str(made[-1]) in page.inner_text("#content")
    page.goto("/admin/usage/?group=key")
    row = page.locator("tbody tr", has=page.locator("th", has_text="bobs-script"))
    assert f"{sum(made):,}" in row.inner_text()
    page.goto("/admin/chat/auditentry/")
    entries = page.text_content("#result_list")
    for action in ("Invitation accepted", "Key made"):
        assert action in entries

    bob.goto("/admin/usage/?group=key")
    assert "first steps" not in bob.inner_text("#content")
    assert "bobs-script" in bob.inner_text("#content")


LIMITS: dict[str, tuple[str, dict[str, Any], str]] = {
    "requests_per_minute": ("1", {}, "1 request.* minute"),
    "requests_per_day": ("1", {}, "1 request.* day"),
    "tokens_per_minute": ("60", {}, "60 tokens.* minute"),
    "input_tokens_per_minute": ("60", {}, "60 input tokens.* minute"),
    "output_tokens_per_minute": ("6", {}, "6 output tokens.* minute"),
    "tokens_per_day": ("60", {}, "60 tokens.* day"),
    "max_context": ("60", {"text": "word " * 80}, "60"),
}
"""The figure of each limit, what is asked beyond it, and how the refusal names it."""


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_set_hit_named_and_logged(console: Any, served: ServedLightcone, limit: str) -> None:
    figure, fields, words = LIMITS[limit]
    app = App(served, made_key(console, f"app-{limit}", **{limit: figure}))
    first = app.ask()
    assert first.status_code == 200, first.text
    assert re.search(words, app.refusal(**fields))
    assert re.search(words, logged(console, app).inner_text("#content"))


def test_requests_at_once_are_limited(console: Any, served: ServedLightcone) -> None:
    app = App(served, made_key(console, "one-at-once", max_concurrency="1"))
    console.goto("/admin/workers/")
    console.get_by_text("None at this moment.").wait_for()
    with asking(app, max_tokens=300, ignore_eos=True) as answers:
        console.locator("[data-key=runs] tbody tr").wait_for()
        assert "at once" in app.refusal()
    assert answers[0].status_code == 200
    assert app.ask().status_code == 200


def test_a_budget_runs_out_and_reopens(console: Any, served: ServedLightcone) -> None:
    app = App(served, made_key(console, "with-budget"))
    console.goto("/admin/chat/budget/add/")
    console.fill("[name=name]", "Trial")
    console.select_option("[name=scope]", "key")
    console.select_option("[name=key]", label=key_label(console, "with-budget"))
    console.select_option("[name=unit]", "tokens")
    console.fill("[name=how_much]", "1000")
    console.check("[name=is_hard]")
    console.click(SAVE)
    console.wait_for_url("**/admin/chat/budget/")

    long = {"max_tokens": 500, "ignore_eos": True}
    first = app.ask(**long)
    assert first.status_code == 200, first.text
    assert "Trial" in app.refusal(**long)
    console.goto("/admin/chat/budget/")
    row = console.locator("#result_list tbody tr", has_text="Trial")
    assert "1,000" in row.inner_text()
    row.get_by_role("link").first.click()
    console.fill("[name=how_much]", "10000")
    console.click(SAVE)
    console.wait_for_url("**/admin/chat/budget/**")
    assert app.ask(**long).status_code == 200


def key_label(page: Any, name: str) -> str:
    labels = page.locator("[name=key] option").all_inner_texts()
    return next(label for label in labels if name in label)


def test_a_model_is_loaded_and_unloaded_while_another_streams(console: Any, served: ServedLightcone) -> None:
    app = App(served, made_key(console, "streaming"))
    console.goto("/admin/chat/servedmodel/add/")
    console.fill("[name=name]", "second")
    console.fill("[name=path]", str(model_choice(path="", name="").path))
    console.click(SAVE)
    long = {"max_tokens": 300, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    second = console.locator(".lc-live-model", has=console.get_by_role("heading", name="second", exact=True))
    with asking(app, **long) as answers:
        for act, state in (("Load", "ready"), ("Unload", "unloaded")):
            console.goto("/admin/workers/")
            second.get_by_role("link", name=act, exact=True).first.click()
            console.locator("form button.lc-button", has_text=act).click()
            console.goto("/admin/workers/")
            # A model that has just left has the lease of its worker and that of its host for a moment.
            second.locator(f".lc-state-{state}").first.wait_for(timeout=120_000)
    for answer in answers:
        frames = answer.text.strip().split("\n\n")
        assert frames[-1] == "data: [DONE]"
        assert json.loads(frames[-2].removeprefix("data: "))["usage"]["completion_tokens"] == 300


def test_exported_figures_are_those_of_the_page_and_of_the_answers(console: Any, served: ServedLightcone) -> None:
    app = App(served, made_key(console, "counted"))
    usages = [app.ask(f"Count to {number}.").json()["usage"] for number in range(3)]
    sent, made = (sum(usage[name] for usage in usages) for name in ("prompt_tokens", "completion_tokens"))
    logged(console, app)
    console.goto("/admin/usage/?group=key")
    row = console.locator("tbody tr", has=console.locator("th", has_text="counted"))
    shown = {
        int(text.replace(",", "")) for text in row.locator("td").all_inner_texts() if text.strip("0123456789,") == ""
    }
    assert {3, sent, made} <= shown
    row.locator("th a").click()
    with console.expect_download() as found:
        console.locator(".lc-exports a", has_text="CSV").first.click()
    rows = list(csv.DictReader(StringIO(found.value.path().read_text(encoding="utf-8-sig"))))
    assert rows, "the file is empty"
    for column, total in (("prompt_tokens", sent), ("completion_tokens", made), ("requests", 3)):
        assert sum(int(row[column] or 0) for row in rows) == total, json.dumps(rows[0])
