"""A playground page with a scripted server: the test reads the page's socket messages and answers them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client

from tests.browser.contexts import PATIENCE_MS

USAGE = {"prompt_tokens": 3, "cached_tokens": 0, "completion_tokens": 5, "reasoning_tokens": 0}
TIMINGS = {"first_token_s": 0.1, "total_s": 0.5, "tokens_per_s": 10.0}
REFUSALS = ("401 (Unauthorized)", "409 (Conflict)")
"""What a browser reports of requests that the server refuses although page and server do as they should."""
ENDS = ("requestfinished", "requestfailed")
MESSAGE = "#messages > li:nth-child({})"


def note_problems(page: Any, problems: list[str]) -> None:
    """Append to `problems` what goes wrong in a page from now on."""
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if _is_problem(said) else None)


def _is_problem(said: Any) -> bool:
    return said.type == "error" and not any(refusal in said.text for refusal in REFUSALS)


def until_connected(page: Any, problems: list[str], in_flight: Iterable[Any] = ()) -> None:
    """Wait until a page is ready; if it never is, say what it shows, what went wrong, and what it still waits for."""
    # NOTE: imported here, as conftest.py skips these tests where it is not installed.
    from playwright.sync_api import TimeoutError  # noqa: PLC0415

    try:
        page.wait_for_selector("#connection[data-state=ready]")
    except TimeoutError as error:
        urls = [request.url for request in in_flight]
        error.add_note(f"{page.url} says {page.inner_text('body')[:1000]!r}; problems: {problems}; unanswered: {urls}")
        raise


def wait_painted(page: Any) -> None:
    """Wait for a page to draw what has changed, which it does in its next frame."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


class ScriptedPage:
    """A page with a scripted socket.

    `received`: messages of all its sockets that no test has taken yet. `problems`: errors in the page.
    `in_flight`: requests over HTTP that have not ended.
    """

    def __init__(self, context: Any, base_url: str) -> None:
        self.base_url = base_url
        self.problems: list[str] = []
        self.received: list[dict[str, Any]] = []
        self.socket: Any = None
        self.is_reachable = True
        self.in_flight: set[Any] = set()
        context.route_web_socket("**/ws/playground", self._opened)
        self.listeners: dict[str, Callable[[Any], None]] = {
            "request": lambda request: self.in_flight.add(request),
            **dict.fromkeys(ENDS, lambda request: self.in_flight.discard(request)),
        }
        for event, listener in self.listeners.items():
            context.on(event, listener)
        self.page = context.new_page()
        note_problems(self.page, self.problems)

    def close(self) -> None:
        """Let the server answer what was asked, and ask nothing more: its database is about to be emptied."""
        problems = list(self.problems)
        context = self.page.context
        context.route("**/*", lambda route: route.abort())
        self.wait_for(lambda: not self.in_flight)
        for event, listener in self.listeners.items():
            context.remove_listener(event, listener)
        self.problems[:] = problems

    def _opened(self, socket: Any) -> None:
        if not self.is_reachable:
            socket.close(code=1001)
            return
        self.socket = socket
        socket.on_message(lambda text: self.received.append(json.loads(text)))

    def sign_in(self, name: str = "ada") -> Any:
        """Open the chat as `name`. The form itself is tested against a served Lightcone."""
        self.be(name)
        self.page.goto("/")
        self.wait_ready()
        return self.page

    def be(self, name: str) -> None:
        """Let this person be the one who opens pages from now on."""
        client = Client()
        client.force_login(get_user_model().objects.get(username=name))
        cookie = client.cookies[settings.SESSION_COOKIE_NAME]
        self.page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": self.base_url}])

    def set_fields(self, **fields: Any) -> None:
        """Set the fields of the request, as the panel of parameters does (test_parameters.py)."""
        self.page.evaluate(
            """async (parameters) => {
                const acts = await import('/static/chat/playground/app/core/acts.js');
                const app = await import('/static/chat/playground/app/core/app.js');
                acts.changeSettings(app.chat.value, { parameters });
            }""",
            fields,
        )

    def pick_model(self, name: str) -> None:
        self.page.click("#model")
        self.page.click(f"[data-model='{name}']")

    def wait_ready(self) -> None:
        until_connected(self.page, self.problems, self.in_flight)

    def sign_out(self) -> None:
        self.page.click(".account summary")
        self.page.click("#sign-out button")
        self.page.wait_for_selector("#id_username")

    def ask(self, text: str) -> None:
        self.page.fill("#composer-text", text)
        self.page.press("#composer-text", "Enter")

    def next(self, kind: str) -> dict[str, Any]:
        """Return the next message of the page of this type; others before it are dropped."""
        return self.wait_for(lambda: next(self._taken(kind), None))

    def _taken(self, kind: str) -> Iterator[dict[str, Any]]:
        while self.received:
            message = self.received.pop(0)
            if message["type"] == kind:
                yield message

    def wait_for(self, look: Callable[[], Any]) -> Any:
        """Poll `look` until it returns a value; the page runs meanwhile.

        Playwright's own `wait_for_function` polls by `eval`, which the pages' content security policy forbids.
        """
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while time.monotonic() < deadline:
            found = look()
            if found:
                return found
            self.page.evaluate("new Promise((done) => setTimeout(done, 5))")
        raise AssertionError(f"waited in vain; the page has sent {self.received}")

    def say(self, run: str, text: str, *, choice: int = 0, **more: Any) -> None:
        self.tell({"type": "delta", "id": run, "choice": choice, "text": text, **more})

    def end(
        self, run: str, *, num_choices: int = 1, outcome: str = "finished", num_tokens: int = 5, **more: Any
    ) -> None:
        choices = [{"finish_reason": "stop", "tokens": num_tokens // num_choices} for _ in range(num_choices)]
        usage = USAGE | {"completion_tokens": num_tokens}
        facts = {"outcome": outcome, "choices": choices, "usage": usage, "timings": TIMINGS, **more}
        self.tell({"type": "completed", "id": run, **facts})

    def fail(self, run: str, code: str, message: str = "It failed.", param: str | None = None) -> None:
        self.tell({"type": "error", "id": run, "error": {"message": message, "code": code, "param": param}})

    def tell(self, message: dict[str, Any]) -> None:
        self.socket.send(json.dumps(message))

    def answer(self, text: str) -> dict[str, Any]:
        """Answer the next request of the page and return it."""
        start = self.next("start")
        self.say(start["id"], text)
        self.end(start["id"])
        self.wait_idle()
        return start["request"]

    def wait_idle(self) -> None:
        """Wait until no answer runs, and all of it is saved and drawn."""
        self.page.wait_for_selector("#stop", state="detached")
        self.wait_for(lambda: not self.in_flight)
        self.wait_painted()

    def wait_painted(self) -> None:
        """Wait for the page to draw what it has received."""
        wait_painted(self.page)

    def turn(self, question: str, answer: str) -> dict[str, Any]:
        self.ask(question)
        return self.answer(answer)

    def texts(self) -> list[str]:
        """Return the texts of the chat by message, including those scrolled out of sight, once they are drawn."""
        self.wait_painted()
        self.page.wait_for_selector("#messages [aria-busy]", state="detached")
        return [text.strip() for text in self.page.locator("#messages > li .message-body").all_text_contents()]
