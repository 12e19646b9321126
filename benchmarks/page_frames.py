"""How smoothly the playground draws: frames while an answer streams, long answers after a reload, long chats scrolled.

    python benchmarks/page_frames.py --url http://127.0.0.1:8000 --user admin --password … [--seconds 15] [CASE …]

Signs in at a served Lightcone. For streams the page's socket is one of ours, in the page, that sends a token a message
at a steady rate; no model takes part. The other cases save a conversation first, and delete it. A frame is the time
between two calls of requestAnimationFrame, which other programs lengthen. Script, layout and all are processor time of
the page's main thread (CDP's `Performance.getMetrics`), divided by the frames; "task" is the most that one task took
(from a trace). "settled" is when the end of the text was drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from statistics import quantiles
from typing import Any, cast

from playwright.sync_api import Browser, Page, sync_playwright

WORDS = "light bends where it meets glass and each colour takes a slightly different way out of it".split()
SLOW_MS = 50

# What the page takes for its socket: it answers each start with the texts of `window.script`, at its rate.
SOCKET = """
window.WebSocket = class extends EventTarget {
  static OPEN = 1;
  constructor() {
    super();
    this.readyState = 0;
    setTimeout(() => { this.readyState = 1; this.dispatchEvent(new Event("open")); });
  }
  tell(message) { this.dispatchEvent(new MessageEvent("message", { data: JSON.stringify(message) })); }
  close() {}
  send(text) {
    const { type, id } = JSON.parse(text);
    if (type === "start") this.answer(id);
  }
  answer(id) {
    const { tokens, rate } = window.script;
    const begun = performance.now();
    let sent = 0;
    this.tell({ type: "admitted", id, prompt_tokens: 5, max_tokens: 9999, seed: 1, model: "m" });
    const timer = setInterval(() => {
      const due = Math.min(tokens.length, Math.floor(((performance.now() - begun) * rate) / 1000));
      while (sent < due) this.tell({ type: "delta", id, choice: 0, text: tokens[sent++] });
      if (sent < tokens.length) return;
      clearInterval(timer);
      const usage = { prompt_tokens: 5, cached_tokens: 0, completion_tokens: sent, reasoning_tokens: 0 };
      const choices = [{ finish_reason: "stop", tokens: sent }];
      const timings = { first_token_s: 0.1, total_s: 1, tokens_per_s: rate };
      this.tell({ type: "completed", id, outcome: "finished", choices, usage, timings });
    }, 4);
  }
};
"""
# Notes the time of each frame from the first moment on.
FRAMES = """
window.frames_ms = [];
const note = (now) => { window.frames_ms.push(now); requestAnimationFrame(note); };
requestAnimationFrame(note);
"""
SCROLL = """async () => {
  const area = document.getElementById("conversation");
  const frame = () => new Promise(requestAnimationFrame);
  for (const step of [-400, 400]) {
    for (let n = 0; n < 900; n += 1) {
      const before = area.scrollTop;
      area.scrollTop += step;
      await frame();
      if (area.scrollTop === before) break;
    }
  }
}"""
POST = """async ({ id, turns }) => {
  const token = /lightcone_csrf=([^;]*)/.exec(document.cookie)[1];
  const headers = { "Content-Type": "application/json", "X-CSRFToken": token };
  const body = JSON.stringify({ conversation: { title: "Frames" }, turns });
  const answer = await fetch(`/playground/api/conversations/${id}/turns`, { method: "POST", headers, body });
  if (!answer.ok) throw new Error(await answer.text());
}"""
DELETE = """async (id) => {
  const token = /lightcone_csrf=([^;]*)/.exec(document.cookie)[1];
  await fetch(`/playground/api/conversations/${id}`, { method: "DELETE", headers: { "X-CSRFToken": token } });
}"""


def _words(number: int) -> str:
    return " ".join(WORDS[(number + at) % len(WORDS)] for at in range(12))


LINES: dict[str, tuple[str, Callable[[int], str], str]] = {
    "paragraphs": ("", lambda at: f"Paragraph **{at}**: {_words(at)}, `code` and *more*.\n\n", ""),
    "list": ("", lambda at: f"- item **{at}**: {_words(at)}\n", ""),
    "table": (
        "| a | b | c |\n| --- | --- | --- |\n",
        lambda at: f"| {at} | **{WORDS[at % 9]}** | {_words(at)} |\n",
        "",
    ),
    "code": (
        "```python\n",
        lambda at: f"value_{at} = compute({at}, name='{WORDS[at % 9]}')  # {_words(at)}\n",
        "```\n",
    ),
}

LAST: dict[str, Callable[[str], str]] = {
    # What the last line of a text says that no other does.
    "paragraphs": lambda text: f"Paragraph {text.count('Paragraph') - 1}:",
    "list": lambda text: f"item {text.count('- item') - 1}:",
    "code": lambda text: f"value_{text.count('value_') - 1} ",
}


def _text(kind: str, num_chars: int) -> str:
    head, line, tail = LINES[kind]
    lines: list[str] = [head]
    size = 0
    for at in count():
        if size >= num_chars:
            return "".join(lines) + tail
        lines.append(line(at))
        size += len(lines[-1])
    raise AssertionError


def _tokens(text: str) -> list[str]:
    """Return pieces of four characters, as many tokens have."""
    return [text[at : at + 4] for at in range(0, len(text), 4)]


class Bench:
    """A signed-in browser, and the session's cookies for each fresh page."""

    def __init__(self, browser: Any, options: argparse.Namespace) -> None:
        self.browser, self.options = browser, options
        page = browser.new_page()
        page.goto(f"{options.url}/sign-in")
        page.fill("#id_username", options.user)
        page.fill("#id_password", options.password)
        with page.expect_navigation(url=f"{options.url}/"):
            page.click("button[type=submit]")
        self.cookies = page.context.cookies()
        page.context.close()

    def page(self, *scripts: str) -> Page:
        context = self.browser.new_context(base_url=self.options.url, viewport={"width": 1440, "height": 900})
        context.set_default_timeout(120_000)
        context.add_cookies(self.cookies)
        for script in scripts:
            context.add_init_script(script)
        return context.new_page()

    def stream(self, kind: str, rate: int) -> None:
        page = self.page(SOCKET, FRAMES)
        page.goto("/")
        page.wait_for_selector("#connection[data-state=ready]")
        tokens = _tokens(_text(kind, 4 * rate * self.options.seconds))
        page.evaluate("(script) => { window.script = script; }", {"tokens": tokens, "rate": rate})
        with Measured(page, f"{kind}, {rate} tokens/s, {sum(map(len, tokens)) // 1000} kB"):
            page.fill("#composer-text", "Go")
            page.press("#composer-text", "Enter")
            page.wait_for_selector("#stop")
            page.wait_for_selector("#stop", state="detached")
        self._leave(page)

    def shown(self, kind: str, num_chars: int) -> None:
        """Open a saved answer of so many characters."""
        text = _text(kind, num_chars)
        page, conversation = self._saved(iter([("user", "Go"), ("assistant", text)]))
        with Measured(page, f"{kind}, {num_chars // 1000} kB after a reload", from_start=True):
            page.goto(f"/c/{conversation}")
            page.wait_for_selector(f".prose-text .block:last-child:has-text({json.dumps(LAST[kind](text))})")
        self._leave(page, conversation)

    def scrolled(self, num_turns: int) -> None:
        answer = _text("paragraphs", 600) + _text("list", 300) + "\n" + _text("code", 300)
        turns = (("user", f"Question {at}?") if at % 2 == 0 else ("assistant", answer) for at in range(num_turns))
        page, conversation = self._saved(turns)
        with Measured(page, f"{num_turns} turns opened", from_start=True):
            page.goto(f"/c/{conversation}")
            page.wait_for_selector(f"#messages > li:nth-child({num_turns})")
        with Measured(page, f"{num_turns} turns scrolled up and down"):
            page.evaluate(SCROLL)
        self._leave(page, conversation)

    def _saved(self, turns: Iterator[tuple[str, str]]) -> tuple[Page, str]:
        page = self.page(FRAMES)
        page.goto("/")
        page.wait_for_selector("#connection[data-state=ready]")
        conversation, parent, made = str(uuid.uuid4()), "", []
        for role, text in turns:
            choice = {"content": text, "reasoning": "", "calls": [], "finish_reason": "stop"}
            content = text if role == "user" else {"choices": [choice], "shown": 0}
            made.append({"id": str(uuid.uuid4()), "parent": parent, "role": role, "content": content, "state": "ended"})
            parent = made[-1]["id"]
        for at in range(0, len(made), 64):
            page.evaluate(POST, {"id": conversation, "turns": made[at : at + 64]})
        return page, conversation

    @staticmethod
    def _leave(page: Page, conversation: str | None = None) -> None:
        found = conversation or page.evaluate("/^\\/c\\/(.+)$/.exec(location.pathname)?.[1] ?? ''")
        if found:
            page.evaluate(DELETE, found)
        page.context.close()


class Measured:
    """Prints a line of the frames that pass inside. `from_start`: a page is opened there."""

    def __init__(self, page: Page, name: str, *, from_start: bool = False) -> None:
        self.page, self.name, self.from_start = page, name, from_start
        self.session = page.context.new_cdp_session(page)
        self.browser = cast(Browser, page.context.browser)

    def __enter__(self) -> None:
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.page.wait_for_timeout(500)  # what was there before comes to rest
        self.before = {} if self.from_start else self._metrics()
        self.first = 0 if self.from_start else self.page.evaluate("window.frames_ms.length")
        self.browser.start_tracing(categories=["disabled-by-default-devtools.timeline", "__metadata"])

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.browser.stop_tracing()
            return
        settled_ms = self.page.evaluate("performance.now()")
        self.page.wait_for_timeout(300)
        times = self.page.evaluate(f"window.frames_ms.slice({max(0, self.first - 1)})")
        frames = [later - earlier for earlier, later in zip(times, times[1:], strict=False)] or [0.0]
        after = self._metrics()
        task_ms = _longest_task_ms(self.browser.stop_tracing())
        per_frame = {
            name: 1000 * (after[f"{name}Duration"] - self.before.get(f"{name}Duration", 0)) / len(frames)
            for name in ("Script", "Layout", "RecalcStyle", "Task")
        }
        p95 = quantiles(frames, n=20)[-1] if len(frames) > 1 else frames[0]
        slow = sum(frame > SLOW_MS for frame in frames)
        settled = f"  settled {settled_ms:5.0f} ms" if self.from_start else ""
        print(
            f"{self.name:42} {len(frames):5} frames  {slow:3} over {SLOW_MS} ms  p95 {p95:5.1f}"
            f"  longest {max(frames):6.1f}  task {task_ms:5.1f}"
            f"  a frame: script {per_frame['Script']:5.2f}, layout {per_frame['Layout']:5.2f},"
            f" style {per_frame['RecalcStyle']:5.2f}, all {per_frame['Task']:5.2f} ms"
            f"  heap {after['JSHeapUsedSize'] / 1e6:5.1f} MB{settled}",
            flush=True,
        )

    def _metrics(self) -> dict[str, float]:
        return {entry["name"]: entry["value"] for entry in self.session.send("Performance.getMetrics")["metrics"]}


def _longest_task_ms(trace: bytes) -> float:
    """Return the most processor time that one task of a page's main thread took."""
    events = json.loads(trace)["traceEvents"]
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = (event for event in events if event["name"] == "RunTask" and (event["pid"], event["tid"]) in mains)
    return max((event.get("tdur", 0) / 1000 for event in tasks), default=0.0)


CASES: dict[str, Callable[[Bench], None]] = {
    **{kind: lambda bench, kind=kind: bench.stream(kind, 200) for kind in LINES},
    "fast": lambda bench: bench.stream("paragraphs", 500),
    "long": lambda bench: bench.shown("paragraphs", 200_000),
    "long-list": lambda bench: bench.shown("list", 200_000),
    "long-code": lambda bench: bench.shown("code", 200_000),
    "turns": lambda bench: bench.scrolled(500),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--user", default="admin")
    parser.add_argument("--password", required=True)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES))
    options = parser.parse_args()
    print(f"load {' '.join(f'{load:.1f}' for load in os.getloadavg())} at the start")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        bench = Bench(browser, options)
        for case in options.cases:
            CASES[case](bench)
        browser.close()
    print(f"load {' '.join(f'{load:.1f}' for load in os.getloadavg())} at the end")


if __name__ == "__main__":
    main()
