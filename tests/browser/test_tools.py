"""Tools by hand: calls are shown, checked and answered; tools and the form of answers are set without JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from chat.conversations.services import conversation_create
from chat.conversations.turns import TurnSent, turn_put
from chat.playground.kept import state_change
from tests.browser.scripted import MESSAGE, ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
HOSTILE = '{"city": "<img src=x onerror=window.hit=1><script>window.hit=1</script>"}'


@pytest.fixture
def page(scripted: ScriptedPage) -> Any:
    """The page, not signed in yet."""
    return scripted.page


def with_state(scripted: ScriptedPage, parameters: dict[str, Any], *, tab: str = "", **more: Any) -> None:
    """Sign in to a page that has kept these parameters for the next chat, and shows a tab of the panel."""
    chosen = {"model": "plain", "system": "", "parameters": parameters}
    user = get_user_model().objects.get(username="ada")
    state = {"next": chosen, "sidebar": False, "panel": True, **more}
    state_change(user_id=user.pk, changes=state)
    scripted.sign_in()
    if tab:
        scripted.page.click(f"#panel [role=tab]:has-text('{tab}')")


def call(scripted: ScriptedPage, *calls: tuple[str | None, str]) -> dict[str, Any]:
    """Answer the next request with calls of tools, each (id, arguments), and return it."""
    start = scripted.next("start")
    for index, (call_id, text) in enumerate(calls):
        head = {"index": index, "id": call_id, "name": "weather"}
        scripted.say(start["id"], "", tool_calls=[{**head, "arguments": text[:5]}])
        scripted.say(start["id"], "", tool_calls=[{**head, "arguments": text[5:]}])
    scripted.end(start["id"])
    return start["request"]


def test_two_calls_are_answered_in_any_order_and_sent_in_theirs(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    call(scripted, ("one", '{"city":"Oslo"}'), ("two", '{"city":"Rome"}'))
    page.fill("#result-two", "25 degrees")
    page.press("#send-results", "Enter")  # one is missing: nothing is sent
    assert "One call has no result yet" in page.inner_text(".calls-foot")
    page.fill("#result-one", '{"temp": 3}')
    page.click("#send-results")
    messages = scripted.answer("Rome.")["messages"]
    assert [(m["role"], m.get("tool_call_id"), m["content"]) for m in messages[2:]] == [
        ("tool", "one", '{"temp": 3}'),
        ("tool", "two", "25 degrees"),
    ]
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["one", "two"]
    assert page.locator(".message-tool .message-tool-name").all_text_contents() == ["weather", "weather"]
    assert page.locator(".call-outcome").all_text_contents() == ["answered", "answered"]


def test_unsent_results_survive_a_reload(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    call(scripted, ("one", '{"city":"Oslo"}'), ("two", '{"city":"Rome"}'))
    page.fill("#result-two", "25 degrees")
    scripted.wait_for(lambda: "/c/" in page.url)
    scripted.wait_for(lambda: page.evaluate("!Object.keys(sessionStorage).some((key) => key.endsWith('outbox'))"))
    page.reload()
    scripted.wait_ready()
    page.wait_for_selector("#result-two")
    assert page.input_value("#result-two") == "25 degrees"
    page.locator(".call", has=page.locator("#result-one")).get_by_role("button", name="Skip", exact=True).click()
    page.click("#send-results")
    messages = scripted.answer("Rome.")["messages"]
    assert "skipped" in messages[2]["content"]
    assert messages[3]["content"] == "25 degrees"


def test_saved_replies_answer_calls_eight_times_in_a_row(scripted: ScriptedPage, page) -> None:
    replies = {"weather": '{"temp": 21, "city": "{{city}}", "days": "{{days}}"}'}
    with_state(scripted, {"tools": [WEATHER]}, replies=replies, auto_reply=True)
    scripted.ask("Where is it warm?")
    for number in range(8):
        call(scripted, (f"call-{number}", '{"city":"Oslo \\"N\\"","days":2}'))
    last = call(scripted, ("call-8", '{"city":"Oslo","days":2}'))["messages"]
    assert json.loads(last[2]["content"]) == {"temp": 21, "city": 'Oslo "N"', "days": 2}
    assert sum(message["role"] == "tool" for message in last) == 8
    page.wait_for_selector("text=Stopped after 8 of 8")
    assert scripted.received == []


def test_saved_replies_answer_what_ended_before_they_were_loaded(scripted: ScriptedPage, page) -> None:
    held: list[Any] = []
    page.route("**/tools/replies*.js", lambda route: held.append(route))
    with_state(scripted, {"tools": [WEATHER]}, replies={"weather": "Sun."}, auto_reply=True)
    scripted.ask("Where is it warm?")
    call(scripted, ("one", '{"city":"Oslo"}'))
    page.wait_for_selector(".message-assistant[data-state=ended]")
    scripted.wait_for(lambda: held)
    held.pop().continue_()
    assert scripted.answer("There.")["messages"][-1] == {"role": "tool", "tool_call_id": "one", "content": "Sun."}


def test_a_call_without_what_its_reply_needs_waits_for_the_reader(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]}, replies={"weather": "It rains in {{place.name}}."}, auto_reply=True)
    scripted.ask("Where is it warm?")
    call(scripted, ("one", '{"city":"Oslo"}'))
    page.click("text=Use saved reply")
    assert "needs place.name" in page.inner_text(".call-result")
    assert page.input_value("#result-one") == ""


@pytest.mark.parametrize("missing", [None, ""])
def test_calls_without_ids_are_answered_one_by_one(scripted: ScriptedPage, page, missing: str | None) -> None:
    """The boxes of results named such a call by its place, saved replies by nothing, and the request not at all."""
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    call(scripted, (missing, '{"city":"Oslo"}'), (missing, '{"city":"Rome"}'))
    for city, text in [("Oslo", "3 degrees"), ("Rome", "25 degrees")]:
        card = page.locator(".call", has=page.locator(f".call-arguments:has-text('{city}')"))
        card.get_by_label("Result", exact=True).fill(text)
    page.click("#send-results")
    messages = scripted.answer("Rome.")["messages"]
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert len({*ids}) == 2
    assert [(m["tool_call_id"], m["content"]) for m in messages[2:]] == [(ids[0], "3 degrees"), (ids[1], "25 degrees")]
    assert page.locator(".message-tool .message-tool-name").all_text_contents() == ["weather", "weather"]
    assert page.locator(".call-outcome").all_text_contents() == ["answered", "answered"]


def test_saved_replies_answer_calls_without_ids(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]}, replies={"weather": "{{city}} is warm."}, auto_reply=True)
    scripted.ask("Where is it warm?")
    call(scripted, (None, '{"city":"Oslo"}'), (None, '{"city":"Rome"}'))
    messages = scripted.answer("Rome.")["messages"]
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert [(m["tool_call_id"], m["content"]) for m in messages[2:]] == [
        (ids[0], "Oslo is warm."),
        (ids[1], "Rome is warm."),
    ]
    assert None not in ids
    assert len({*ids}) == 2


def test_edited_arguments_make_a_branch(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    call(scripted, ("one", '{"city":"Oslo"}'))
    page.click("[aria-label='Edit the arguments']")
    page.fill("[aria-label='Arguments as JSON']", '{"city": "Bergen"}')
    page.click("text=Save as a new version")
    assert page.inner_text(".siblings") == "2/2"
    page.fill("#result-one", "rain")
    page.click("#send-results")
    sent = scripted.answer("Rain.")["messages"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"city": "Bergen"}
    page.click("[aria-label='Earlier version']")
    page.wait_for_selector(".call:not(.is-over) .call-arguments:has-text('Oslo')")


def test_arguments_are_checked_and_never_markup(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    call(scripted, ("one", HOSTILE), ("two", '{"days":"<b>two</b>"}'), ("three", '{"city": "Os'))
    page.wait_for_selector(".call-problems:has-text('not JSON')")
    problems = page.locator(".call-problems").all_inner_texts()
    assert "city is missing" in problems[0]
    assert "days must be integer" in problems[0]
    assert "not JSON" in problems[1]
    page.wait_for_selector("text=onerror=window.hit")
    assert page.evaluate("[window.hit, document.querySelectorAll('.calls img, .calls script, .calls b').length]") == [
        None,
        0,
    ]


def test_alternatives_names_and_references_are_checked(scripted: ScriptedPage, page) -> None:
    place = {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]}
    cases: list[tuple[Any, Any, str]] = [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, " must be string | null, and is number"),
        ({"anyOf": [place, {"type": "null"}]}, {}, ".name is missing"),
        ({"anyOf": [{"minimum": 3}, {"type": "string"}]}, 1, " satisfies none of the alternatives"),
        ({"oneOf": [{"minimum": 3}, {"type": "integer"}]}, 4, " satisfies more than one of the alternatives"),
        ({"propertyNames": {"pattern": "^x"}}, {"y": 1}, ".y is no name that may stand here: must match ^x"),
        ({"$ref": "#/$defs/place"}, {"name": ""}, ".name must have at least 1 characters"),
        ({"type": "integer"}, 2**60, ""),
    ]
    properties = {f"p{at}": schema for at, (schema, _, _) in enumerate(cases)}
    parameters = {"type": "object", "properties": properties, "$defs": {"place": place}}
    with_state(scripted, {"tools": [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]})
    scripted.ask("Where is it warm?")
    call(scripted, ("one", json.dumps({f"p{at}": value for at, (_, value, _) in enumerate(cases)})))
    page.wait_for_selector(".call-problems")
    expected = [f"p{at}{said}" for at, (_, _, said) in enumerate(cases) if said]
    assert page.locator(".call-problems li").all_inner_texts() == expected


def test_a_form_and_json_make_the_same_tool(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {}, tab="Tools")
    page.click("#tool-add")
    page.fill("#tool-name", "weather")
    for at, (name, kind) in enumerate([("city", "string"), ("days", "integer")]):
        page.click("text=Add a parameter")
        page.locator("[aria-label='Name of the parameter']").nth(at).fill(name)
        page.keyboard.press("Tab")
        page.select_option(f"[aria-label='Type of {name}']", kind)
    page.locator(".schema-required input").first.check()
    page.click("text=Save tool")
    assert scripted.turn("Hello", "Hi")["tools"] == [WEATHER]
    page.uncheck("[aria-label='Offer weather']")
    assert "tools" not in scripted.turn("Hello", "Hi")
    page.check("[aria-label='Offer weather']")
    page.select_option("#tool-choice", "function:weather")
    page.select_option("#parallel-calls", "false")
    request = scripted.turn("Hello", "Hi")
    assert request["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert (request["tools"], request["parallel_tool_calls"]) == ([WEATHER], False)


def test_the_json_of_a_tool_has_the_editor_of_the_request(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {}, tab="Tools")
    page.click("#tool-add")
    page.fill("#tool-name", "weather")
    page.click(".dialog [role=tab]:has-text('JSON')")
    page.click(".dialog .json-editor .cm-content[aria-label='Tool as JSON']")
    assert "weather" in page.inner_text(".dialog .cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text('{"type": "function", "function": {"name": "tides"')
    page.wait_for_selector(".dialog .cm-lint-marker-error")
    assert "This is not JSON" in page.inner_text(".dialog .problem")
    page.keyboard.insert_text("}}")
    page.wait_for_selector(".dialog .problem", state="detached")
    page.keyboard.press("Tab")  # no indent: the next control of the dialog has the focus
    assert page.evaluate("document.activeElement.closest('.json-editor')") is None
    page.click(".dialog [role=tab]:has-text('Form')")
    assert page.input_value("#tool-name") == "tides"
    page.click("text=Save tool")
    assert scripted.turn("Hello", "Hi")["tools"] == [{"type": "function", "function": {"name": "tides"}}]


def test_python_signatures_and_operations_of_openapi_become_tools(scripted: ScriptedPage, page) -> None:
    source = '''def get_weather(city: str, unit: Literal["c", "f"] = "c", *,
            tags: list[str] | None = None, at: Point) -> str:
        """Tell the weather.

        Args:
            city: its name, (any) spelling
        """'''
    operation = {
        "operationId": "getPet",
        "summary": "Find a pet",
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}},
    }
    with_state(scripted, {}, tab="Tools")
    page.click("#tool-import")
    page.fill("#import-text", source)
    assert "get_weather.at: the type Point is not known" in page.inner_text(".dialog")
    page.click("text=Add tools")
    page.click("#tool-import")
    page.fill("#import-text", json.dumps(operation))
    assert "#/components/schemas/Pet is not in the text" in page.inner_text(".dialog")
    page.click("text=Add tools")
    weather, pet = (tool["function"] for tool in scripted.turn("Hello", "Hi")["tools"])
    assert weather["description"] == "Tell the weather."
    assert weather["parameters"] == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "its name, (any) spelling"},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "at": {},
        },
        "required": ["city", "at"],
    }
    assert (pet["name"], pet["description"]) == ("getPet", "Find a pet")
    assert pet["parameters"]["required"] == ["id"]


def test_tool_sets_are_kept_for_all_chats(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]}, tab="Tools")
    page.fill("[aria-label='Name of the set']", "outdoors")
    page.click(".tool-sets button[type=submit]")
    page.click("[aria-label='Remove weather']")
    assert "tools" not in scripted.turn("Hello", "Hi")
    page.click("text=outdoors")
    assert scripted.turn("Hello", "Hi")["tools"] == [WEATHER]


def test_a_schema_is_completed_and_marked_where_it_cannot_be_held(scripted: ScriptedPage, page) -> None:
    """What the server said stood below the text alone, and no keyword was offered."""
    problem = {"message": "'not' is not supported", "path": "/properties/a~1b/anyOf/1/not"}
    answer = {"is_valid": False, "problems": [problem], "matches": None, "example": None, "max_bytes": 262144}
    page.route("**/playground/api/check", lambda route: route.fulfill(json=answer))
    with_state(scripted, {}, tab="Output")
    page.select_option("#output-mode", "schema")
    page.click("#schema-edit")
    page.click(".dialog .cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(
        json.dumps({"properties": {"a/b": {"anyOf": [{"type": "string"}, {"not": {}}]}}}, indent=1)
    )
    page.wait_for_selector(".dialog .cm-lintRange-error:has-text('not')")
    page.wait_for_selector(".dialog .hint:has-text('of 262,144 bytes')")
    page.keyboard.press("Control+a")
    page.keyboard.type('{"type": "arr')
    page.wait_for_selector(".cm-tooltip-autocomplete li:has-text('array')")
    page.keyboard.press("Enter")
    page.keyboard.type(', "items": {"forma')
    page.wait_for_selector(".cm-tooltip-autocomplete li:has-text('format')")


def test_a_schema_is_made_from_json_and_answers_are_held_to_it(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {}, tab="Output")
    page.select_option("#output-mode", "schema")
    page.click("#schema-edit")
    page.click("[role=tab]:has-text('From JSON')")
    page.fill("#schema-sample", '{"name": "Ada", "langs": [{"id": 1}]}')
    page.click("text=Make a schema from this JSON")
    page.click("text=Save schema")
    asked = scripted.turn("Hello", '{"name": "Bob", "langs": []}')["response_format"]
    assert asked["type"] == "json_schema"
    assert asked["json_schema"]["schema"]["properties"]["langs"]["items"]["required"] == ["id"]
    assert page.locator(".message .verdict").last.inner_text() == "Matches the schema"
    scripted.turn("Hello", '{"name": "Bob", "langs": [{"id": "x"}]}')
    assert "langs[0].id must be integer" in page.locator(".message .verdict").last.inner_text()


def test_only_answers_in_sight_are_checked_by_the_server_each_once(scripted: ScriptedPage, page) -> None:
    """Opening a chat sent a check for each of its answers."""
    scripted.be("ada")
    user = get_user_model().objects.get(username="ada")
    conversation_create(user_id=user.pk, public_id="long", fields={"title": "A long one"})
    asked = {"system": "", "fields": {"structured_outputs": {"regex": "a+"}}}
    for number in range(12):
        content = {"choices": [{"content": f"{number}\n\n" + "aaa\n\n" * 40, "reasoning": "", "calls": []}], "shown": 0}
        body = {"content": content, "parameters": asked, "outcome": "finished"}
        sent = TurnSent(f"t{number}", f"t{number - 1}" if number else "", "assistant", "ended", body)
        turn_put(user_id=user.pk, conversation_id="long", sent=sent)
    checked: list[str] = []

    def check(route: Any) -> None:
        checked.append(route.request.post_data_json["text"].split()[0])
        route.fulfill(json={"is_valid": True, "problems": [], "matches": False, "example": None})

    page.route("**/playground/api/check", check)
    page.goto("/c/long")
    page.wait_for_selector("[data-turn=t11] .verdict")
    for number in (0, 11, 0):
        page.evaluate(
            f"document.querySelector('[data-turn=t{number}] .message-foot').scrollIntoView({{ block: 'center' }})"
        )
        page.wait_for_selector(f"[data-turn=t{number}] .verdict")
    assert {"0", "11"} <= set(checked)
    assert len(checked) == len(set(checked)) < 8


def test_an_answer_has_one_constraint_at_a_time(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"structured_outputs": {"regex": "a+", "disable_any_whitespace": False}}, tab="Output")
    assert page.input_value("#output-regex") == "a+"
    page.select_option("#output-mode", "choice")
    page.fill("#output-choice", "left\nright")
    request = scripted.turn("Where?", "up")
    assert request["structured_outputs"] == {"disable_any_whitespace": False, "choice": ["left", "right"]}
    assert page.locator(".message .verdict").last.inner_text() == "None of the choices."
    page.select_option("#output-mode", "json")
    request = scripted.turn("Where?", "{}")
    assert request["response_format"] == {"type": "json_object"}
    assert request["structured_outputs"] == {"disable_any_whitespace": False}


def test_an_edited_answer_keeps_its_calls_and_reasoning(scripted: ScriptedPage, page) -> None:
    """Its calls were dropped, and so the results of tools had nothing to answer to."""
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    start = scripted.next("start")
    scripted.say(start["id"], "", reasoning="Ask for Oslo.")
    scripted.say(start["id"], "I look.")
    scripted.say(
        start["id"], "", tool_calls=[{"index": 0, "id": "one", "name": "weather", "arguments": '{"city":"Oslo"}'}]
    )
    scripted.end(start["id"])
    scripted.wait_idle()
    page.click(f"{MESSAGE.format(2)} .message-acts > .menu > summary")
    page.click(f"{MESSAGE.format(2)} .menu-act:has-text('Edit')")
    page.fill(".edit-form textarea", "I look up the weather.")
    page.click(".edit-form >> text=Save")
    page.wait_for_selector(".siblings:has-text('2/2')")
    scripted.wait_for(lambda: not scripted.in_flight)
    page.reload()
    scripted.wait_ready()
    page.wait_for_selector("#result-one")
    assert page.text_content(".thoughts-text") == "Ask for Oslo."
    page.fill("#result-one", "rain")
    page.click("#send-results")
    messages = scripted.answer("Rain.")["messages"]
    assert messages[1]["content"] == "I look up the weather."
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["one"]
    assert messages[2] == {"role": "tool", "tool_call_id": "one", "content": "rain"}
