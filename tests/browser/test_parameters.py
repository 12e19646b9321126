"""The panel: defaults are shown, what is set is sent, what is wrong is said; presets; the same as JSON."""

from __future__ import annotations

import json

import pytest

from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PLAIN = {"model", "messages"}


@pytest.fixture
def page(scripted: ScriptedPage):
    page = scripted.sign_in()
    scripted.pick_model("greedy")
    open_panel(page)
    return page


def open_panel(page) -> None:
    page.click("#panel-toggle")
    page.wait_for_selector("#field-temperature")


def open_json(page) -> None:
    page.get_by_role("tab", name="JSON").click()
    page.wait_for_selector(".json-editor .cm-content")


def write_json(page, text: str) -> None:
    page.click(".json-editor .cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def read_json(page) -> dict[str, object]:
    return json.loads("\n".join(page.locator(".json-editor .cm-line").all_text_contents()))


def test_defaults_of_the_model_are_shown_and_not_sent(scripted: ScriptedPage, page) -> None:
    assert page.get_attribute("#field-temperature", "placeholder") == "0"
    assert page.input_value("#field-temperature-range") == "0"
    assert page.get_attribute("#field-top_k", "placeholder") == "7"
    assert page.get_attribute("#field-max_completion_tokens", "placeholder") == "rest of the context"
    assert set(scripted.turn("hello", "yes")) == PLAIN


def test_what_is_typed_is_sent_even_if_it_is_the_default(scripted: ScriptedPage, page) -> None:
    page.fill("#field-temperature", "0")
    page.fill("#field-stop", "END\\n")
    page.press("#field-stop", "Enter")
    page.fill("#field-system", "Be brief.")
    request = scripted.turn("hello", "yes")
    assert (request["temperature"], request["stop"]) == (0, ["END\n"])
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    page.click("[aria-label='Reset Temperature']")
    assert set(scripted.turn("hello", "yes")) == PLAIN | {"stop"}
    page.click("#reset-all")
    assert set(scripted.turn("hello", "yes")) == PLAIN
    page.click("#notice >> text=Undo")
    assert set(scripted.turn("hello", "yes")) == PLAIN | {"stop"}


def test_a_value_out_of_range_is_said_and_holds_the_message_back(scripted: ScriptedPage, page) -> None:
    page.fill("#field-temperature", "3")
    assert page.inner_text("#field-temperature-problem") == "Temperature must be a number from 0 to 2."
    page.click("[aria-label='Close']")
    scripted.ask("hello")
    page.wait_for_selector("#field-temperature:focus")
    assert page.input_value("#composer-text") == "hello"
    assert not [message for message in scripted.received if message["type"] == "start"]
    page.fill("#field-temperature", "1.5")
    page.press("#composer-text", "Enter")
    assert scripted.answer("yes")["temperature"] == 1.5


def test_the_field_that_the_server_refuses_has_the_focus(scripted: ScriptedPage, page) -> None:
    page.click("[aria-label='Close']")
    scripted.ask("hello")
    scripted.fail(scripted.next("start")["id"], "invalid_request", param="logit_bias[7]")
    page.wait_for_selector("#field-logit_bias:focus")


def test_every_field_that_the_page_takes_can_be_reached(page) -> None:
    for summary in page.locator(".params-group summary").all():
        summary.click()
    page.wait_for_selector(".params-group:last-of-type .param")
    names = page.locator(".param").evaluate_all("(all) => all.map((one) => one.dataset.field)")
    taken = page.evaluate("JSON.parse(document.getElementById('page-data').textContent).fields")
    assert sorted(names) == sorted({*taken, "system"} - {"model", "messages"})
    page.fill("#params-search", "token bias")
    page.fill("#field-logit_bias", '{"7": "much"}')
    assert "Token biases.7 must be a number" in page.inner_text("#field-logit_bias-problem")


def test_the_form_and_the_json_are_one_object(scripted: ScriptedPage, page) -> None:
    page.fill("#field-top_p", "0.5")
    open_json(page)
    assert read_json(page) == {"model": "greedy", "top_p": 0.5}
    write_json(page, '{"model": "plain", "temperature": 1, "top_p": 0.5}')
    page.get_by_role("tab", name="Parameters").click()
    assert page.input_value("#field-temperature") == "1"
    request = scripted.turn("hello", "yes")
    assert (request["model"], request["temperature"], request["top_p"]) == ("plain", 1, 0.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"model": "plain", "nonsense": 1}', "nonsense is no field"),
        ('{"model": "plain", "messages": []}', "messages is the chat itself"),
        ('{"model": "other"}', "model must be one that is served to you"),
        ('{"model": "plain", "temperature": 3}', "temperature must be a number from 0 to 2"),
        ('{"model": "plain", "response_format": {"type": "xml"}}', "response_format.type must be one of text"),
        ('{"model": "plain", "tool_choice": {"type": "allowed_tools"}}', "tool_choice.allowed_tools is missing"),
        ('{"model": "plain", "stop": 1}', "stop must be text or a list"),
        ('{"model": "plain", "stop": ["a", 1]}', "stop[1] must be text"),
        ('{"model": "plain", "seed": 9007199254740993}', "seed must be a whole number from -9007199254740991"),
        ('{"model": "plain", "logit_bias": {"a": "b"}}', "a is no name that logit_bias may have"),
        ('{"model": "plain", "constructor": 1}', "constructor is no field"),
        ('{"model": "plain"', "not valid JSON"),
        ("[1]", "one JSON object"),
    ],
)
def test_wrong_json_is_said_and_changes_nothing(page, text: str, said: str) -> None:
    open_json(page)
    write_json(page, text)
    assert said in page.inner_text(".json-problems")
    page.wait_for_selector(".json-editor .cm-lint-marker-error")
    page.get_by_role("tab", name="Parameters").click()
    assert page.get_attribute("#model", "value") == "greedy"
    open_json(page)
    assert page.inner_text(".json-editor .cm-content") == text
    page.click("text=Go back to what is set")
    assert read_json(page) == {"model": "greedy"}


def test_names_and_values_are_completed(page) -> None:
    open_json(page)
    write_json(page, '{"model": "plain", ')
    page.keyboard.type('"reasoning_e')
    page.locator(".cm-completionLabel", has_text="reasoning_effort").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.insert_text('ffort": ')
    page.keyboard.press("Control+Space")
    page.locator(".cm-completionLabel", has_text="high").first.wait_for()


def test_presets_are_saved_applied_shared_and_deleted(scripted: ScriptedPage, page) -> None:
    page.fill("#field-temperature", "1.5")
    page.fill("#field-system", "Be brief.")
    page.click(".presets summary")
    page.fill("#preset-name", "Wild")
    page.press("#preset-name", "Enter")
    page.click("[aria-label='Share Wild with the project']")
    page.wait_for_selector("[aria-label='Stop sharing Wild with the project']")
    page.keyboard.press("Escape")
    # The page has saved all that it will: the next sign-in and it would be in each other's way.
    with page.expect_response("**/playground/api/state"):
        page.fill("#field-temperature", "0.5")
    assert page.inner_text(".presets-name") == "Wild (changed)"
    page.click(".presets summary")
    page.click("[aria-label='Delete Wild']")
    page.wait_for_selector(".presets-none")
    page.click("#notice >> text=Undo")
    page.wait_for_selector("#notice", state="detached")
    page.click(".presets summary")
    page.wait_for_selector("[aria-label='Stop sharing Wild with the project']")
    page.keyboard.press("Escape")

    scripted.sign_in("bob")
    open_panel(page)
    page.click(".presets summary")
    page.click(".presets-row >> text=of ada")
    request = scripted.turn("hello", "yes")
    assert (request["model"], request["temperature"]) == ("greedy", 1.5)
    assert request["messages"][0]["content"] == "Be brief."


def test_on_a_phone_the_panel_is_a_sheet_that_keeps_the_focus(scripted: ScriptedPage) -> None:
    page = scripted.page
    page.set_viewport_size({"width": 390, "height": 844})
    scripted.sign_in()
    page.click("#panel-toggle")
    page.wait_for_selector("#field-temperature")
    # The browser's own bar is in the circle too; then nothing of the page has the focus.
    is_inside = "document.activeElement === document.body || document.activeElement.closest('#panel') !== null"
    for _ in range(60):
        assert page.evaluate(is_inside)
        page.keyboard.press("Tab")
    for close in (
        lambda: page.keyboard.press("Escape"),
        lambda: page.mouse.click(200, 20),
        lambda: page.click("text=Done"),
    ):
        close()
        page.wait_for_selector("#panel", state="detached")
        page.wait_for_selector("#panel-toggle:focus")
        page.click("#panel-toggle")
        page.wait_for_selector("#field-temperature")
