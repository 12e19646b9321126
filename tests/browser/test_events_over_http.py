"""Where a network lets no socket through, answers come as events over HTTP: the same texts, stops and reloads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.scripted import MESSAGE, TIMINGS, USAGE, ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


class EventServer:
    """The routes of runs, scripted. `started`, `stopped`: what the page has sent. `readers`: streams that wait."""

    def __init__(self, scripted: ScriptedPage) -> None:
        self.scripted = scripted
        self.started: list[dict[str, Any]] = []
        self.stopped: list[str] = []
        self.readers: list[Any] = []
        self.num_lost = 0
        """How many of the next requests for a run do not get through."""
        context = scripted.page.context
        context.route("**/playground/api/runs", self._start)
        context.route("**/playground/api/runs/*/stop", self._stop)
        context.route("**/playground/api/runs/*/events*", lambda route: self.readers.append(route))

    def _start(self, route: Any) -> None:
        if self.num_lost:
            self.num_lost -= 1
            route.abort()
            return
        body = route.request.post_data_json
        if any(start["id"] == body["id"] for start in self.started):
            error = {"message": "It is known.", "code": "request_id_in_use", "param": "id"}
            route.fulfill(status=409, json={"error": error})
            return
        self.started.append(body)
        route.fulfill(status=202, json={"id": body["id"]})

    def _stop(self, route: Any) -> None:
        self.stopped.append(route.request.url.split("/")[-2])
        route.fulfill(status=202, json={"id": self.stopped[-1]})

    def next(self) -> dict[str, Any]:
        return self.scripted.wait_for(lambda: self.started and self.started[-1])

    def tell(self, *messages: dict[str, Any], first: int = 0) -> None:
        """Tell the next reader, whose stream breaks off then.

        The browser reads on behind the last event that it has, which it names in a header that its driver does not
        show: what is told next stands behind it.
        """
        reader = self.scripted.wait_for(lambda: self.readers and self.readers.pop(0))
        frames = [f"id: {first + at}\ndata: {json.dumps(message)}\n\n" for at, message in enumerate(messages)]
        reader.fulfill(content_type="text/event-stream", body="retry: 20\n\n" + "".join(frames))


def said(run: str, text: str) -> dict[str, Any]:
    return {"type": "delta", "id": run, "choice": 0, "text": text}


def ended(run: str, outcome: str = "finished") -> dict[str, Any]:
    choices = [{"finish_reason": "stop", "tokens": 5}]
    return {
        "type": "completed",
        "id": run,
        "outcome": outcome,
        "choices": choices,
        "usage": USAGE,
        "timings": TIMINGS,
    }


@pytest.fixture
def server(scripted: ScriptedPage) -> EventServer:
    """Signed in behind something that closes every socket."""
    scripted.is_reachable = False
    server = EventServer(scripted)
    scripted.sign_in()
    return server


def test_an_answer_goes_on_behind_the_last_event_where_its_stream_broke(
    scripted: ScriptedPage, server: EventServer
) -> None:
    scripted.ask("hello")
    start = server.next()
    assert start["request"]["messages"] == [{"role": "user", "content": "hello"}]
    run = start["id"]
    server.tell(said(run, "It "), said(run, "begins"))
    scripted.page.wait_for_selector("text=It begins")
    server.tell(said(run, " and goes on"), ended(run), first=2)
    scripted.wait_idle()
    assert scripted.texts() == ["hello", "It begins and goes on"]
    scripted.page.reload()
    scripted.page.wait_for_selector(MESSAGE.format(2))
    scripted.wait_ready()
    assert scripted.texts() == ["hello", "It begins and goes on"]
    assert (len(server.started), server.readers) == (1, [])


def test_a_stop_ends_the_run_and_keeps_its_text(scripted: ScriptedPage, server: EventServer) -> None:
    scripted.ask("hello")
    run = server.next()["id"]
    server.tell(said(run, "half"))
    scripted.page.wait_for_selector("text=half")
    scripted.page.click("#stop")
    scripted.wait_for(lambda: server.stopped == [run])
    server.tell(ended(run, "stopped"), first=1)
    scripted.wait_idle()
    assert scripted.texts() == ["hello", "half"]
    assert scripted.page.locator(".message-error").count() == 0


def test_a_reload_reads_the_run_from_its_first_event(scripted: ScriptedPage, server: EventServer) -> None:
    scripted.ask("hello")
    run = server.next()["id"]
    server.tell(said(run, "It begins"))
    scripted.page.wait_for_selector("text=It begins")
    scripted.wait_for(lambda: server.readers)
    scripted.page.reload()
    server.readers.clear()
    scripted.page.wait_for_selector(MESSAGE.format(2))
    assert scripted.texts() == ["hello", "It begins"]
    scripted.wait_ready()
    server.tell(said(run, "It "), said(run, "begins and goes on"), ended(run))
    scripted.wait_idle()
    assert scripted.texts() == ["hello", "It begins and goes on"]
    assert len(server.started) == 1


def test_a_run_that_is_gone_keeps_what_was_shown(scripted: ScriptedPage, server: EventServer) -> None:
    scripted.ask("hello")
    run = server.next()["id"]
    server.tell(said(run, "half"))
    scripted.page.wait_for_selector("text=half")
    error = {"message": "It is gone.", "code": "not_resumable", "param": None}
    for _ in range(2):  # the stream, and the look why it was refused
        reader = scripted.wait_for(lambda: server.readers and server.readers.pop(0))
        reader.fulfill(status=404, json={"error": error})
    scripted.page.wait_for_selector(".message-error")
    assert scripted.texts() == ["hello", "half"]
    scripted.problems[:] = [problem for problem in scripted.problems if "404" not in problem]


def test_a_request_that_did_not_get_through_is_sent_again(scripted: ScriptedPage, server: EventServer) -> None:
    """The first failure of the network was saved as the end of the answer."""
    server.num_lost = 2
    scripted.ask("hello")
    run = server.next()["id"]
    server.tell(said(run, "yes"), ended(run))
    scripted.wait_idle()
    assert scripted.texts() == ["hello", "yes"]
    assert server.num_lost == 0
    scripted.problems[:] = [problem for problem in scripted.problems if "ERR_FAILED" not in problem]


def test_a_stop_follows_a_request_that_did_not_get_through(scripted: ScriptedPage, server: EventServer) -> None:
    server.num_lost = 1
    scripted.ask("hello")
    scripted.wait_for(lambda: server.num_lost == 0)
    scripted.page.click("#stop")
    run = server.next()["id"]
    scripted.wait_for(lambda: server.stopped == [run])
    server.tell(ended(run, "stopped"))
    scripted.wait_idle()
    assert scripted.page.locator(".message-error").count() == 0
    scripted.problems[:] = [problem for problem in scripted.problems if "ERR_FAILED" not in problem]


def test_a_stop_ends_a_request_that_never_gets_through(scripted: ScriptedPage, server: EventServer) -> None:
    """It was sent once the network was back, and the server answered what nobody waited for."""
    server.num_lost = 1_000_000
    scripted.ask("hello")
    scripted.wait_for(lambda: server.num_lost < 1_000_000)
    scripted.page.click("#stop")
    scripted.page.wait_for_selector(".message-error:has-text('stopped before it was sent')")
    server.num_lost = 0
    scripted.page.click(".message-error button:has-text('Try again')")
    run = scripted.wait_for(lambda: server.started and server.started[-1])["id"]
    server.tell(said(run, "yes"), ended(run))
    scripted.wait_idle()
    assert len(server.started) == 1
    assert scripted.texts() == ["hello", "yes"]
    scripted.problems[:] = [problem for problem in scripted.problems if "ERR_FAILED" not in problem]


def test_a_network_that_stops_letting_sockets_through_loses_nothing(scripted: ScriptedPage) -> None:
    """Only a page that never had a socket tried events; another tried sockets for ever."""
    server = EventServer(scripted)
    scripted.sign_in()
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.say(run, "It begins")
    scripted.page.wait_for_selector("text=It begins")
    scripted.is_reachable = False
    scripted.socket.close(code=1001)
    server.tell(said(run, "It "), said(run, "begins and goes on"), ended(run))
    scripted.wait_idle()
    assert scripted.texts() == ["hello", "It begins and goes on"]
    scripted.ask("and again")
    server.tell(said(server.next()["id"], "yes"), ended(server.next()["id"]))
    scripted.wait_idle()
    assert scripted.texts()[-1] == "yes"


NO_PAGE = {"status": 404, "content_type": "text/plain", "body": "404 page not found"}
"""What a proxy says that has lost its server."""


def test_a_proxy_without_its_server_is_not_taken_for_it(scripted: ScriptedPage) -> None:
    """The page gave up its sockets, and what it was answered for lost."""
    scripted.sign_in()
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.say(run, "It begins")
    scripted.page.wait_for_selector("text=It begins")
    scripted.wait_for(lambda: not scripted.in_flight)
    asked: list[str] = []
    context = scripted.page.context
    context.route("**/playground/api/**", lambda route: (asked.append(route.request.url), route.fulfill(**NO_PAGE)))
    scripted.is_reachable = False
    scripted.socket.close(code=1001)
    scripted.wait_for(lambda: any(url.endswith("/state") for url in asked))
    context.unroute("**/playground/api/**")
    scripted.is_reachable = True
    assert scripted.next("attach")["id"] == run
    scripted.say(run, "It begins and goes on")
    scripted.end(run)
    scripted.wait_idle()
    assert scripted.texts() == ["hello", "It begins and goes on"]
    scripted.problems[:] = [problem for problem in scripted.problems if "404" not in problem]


def test_an_answer_is_not_lost_where_a_proxy_has_lost_its_server(scripted: ScriptedPage, server: EventServer) -> None:
    scripted.ask("hello")
    run = server.next()["id"]
    server.tell(said(run, "It "), said(run, "begins"))
    scripted.page.wait_for_selector("text=It begins")
    for _ in range(2):  # the stream, and the question why it was refused
        scripted.wait_for(lambda: server.readers and server.readers.pop(0)).fulfill(**NO_PAGE)
    scripted.wait_for(lambda: server.readers)
    assert server.readers[0].request.url.endswith("/events?starting_after=1"), "what was read came again"
    server.tell(said(run, " and goes on"), ended(run), first=2)
    scripted.wait_idle()
    assert scripted.texts() == ["hello", "It begins and goes on"]
    scripted.problems[:] = [problem for problem in scripted.problems if "404" not in problem]


AGAIN_MS = 180_000
"""Longer than the page waits from one try of a socket to the next, and than one must hold to be used."""


@pytest.fixture
def patient(scripted: ScriptedPage) -> EventServer:
    """Signed in behind something that closes every socket, with a clock that can be moved on."""
    scripted.page.clock.install()
    scripted.is_reachable = False
    server = EventServer(scripted)
    scripted.sign_in()
    return server


def is_by_events(scripted: ScriptedPage) -> bool:
    app = "import('/static/chat/playground/app/core/app.js')"
    return bool(scripted.page.evaluate(f"async () => (await {app}).connection.isByEvents"))


def wait_for_socket(scripted: ScriptedPage) -> None:
    """Wait until the page uses a socket that holds."""
    scripted.wait_for(lambda: scripted.socket)
    scripted.wait_for(lambda: (scripted.page.clock.fast_forward(AGAIN_MS), not is_by_events(scripted))[1])


def event_of_page(scripted: ScriptedPage, name: str, target: str) -> None:
    scripted.page.evaluate(f"{target}.dispatchEvent(new Event('{name}'))")


@pytest.mark.parametrize(("event", "target"), [("online", "window"), ("visibilitychange", "document")])
def test_sockets_are_used_again_once_they_get_through(
    scripted: ScriptedPage, patient: EventServer, event: str, target: str
) -> None:
    """A page that had gone to events over HTTP stayed there until it was loaded again."""
    scripted.is_reachable = True
    scripted.page.clock.fast_forward(AGAIN_MS)
    event_of_page(scripted, event, target)
    wait_for_socket(scripted)
    scripted.turn("hello", "by a socket")
    assert scripted.texts() == ["hello", "by a socket"]
    assert patient.started == []


def test_a_run_by_events_ends_there_while_a_socket_is_tried(scripted: ScriptedPage, patient: EventServer) -> None:
    scripted.is_reachable = True
    scripted.page.clock.fast_forward(AGAIN_MS)
    scripted.ask("hello")
    run = patient.next()["id"]
    patient.tell(said(run, "It begins"))
    scripted.page.wait_for_selector("text=It begins")
    wait_for_socket(scripted)
    scripted.page.click("#stop")
    scripted.wait_for(lambda: patient.stopped == [run])
    patient.tell(said(run, " and stops"), ended(run, "stopped"), first=1)
    scripted.wait_idle()
    scripted.turn("and?", "by a socket")
    assert scripted.texts() == ["hello", "It begins and stops", "and?", "by a socket"]
    assert len(patient.started) == 1


@pytest.mark.parametrize("is_accepted", [False, True], ids=["blocked", "closed"])
def test_a_socket_that_does_not_hold_holds_nothing_up(
    scripted: ScriptedPage, patient: EventServer, is_accepted: bool
) -> None:
    scripted.is_reachable = is_accepted
    event_of_page(scripted, "online", "window")
    if is_accepted:
        scripted.wait_for(lambda: scripted.socket).close(code=1001)
    scripted.page.clock.fast_forward(AGAIN_MS)
    scripted.is_reachable = False
    scripted.ask("hello")
    run = patient.next()["id"]
    patient.tell(said(run, "by events"), ended(run))
    scripted.wait_idle()
    assert scripted.texts() == ["hello", "by events"]
    assert scripted.page.get_attribute("#connection", "data-state") == "ready"
    assert is_by_events(scripted)
