"""What the first visit of a page costs: requests, bytes on the wire and paints, in Chromium with an empty cache.

    python benchmarks/page_weight.py --url http://127.0.0.1:8000 --user admin --password … [--visits 5] [PATH …]

Signs in at a served Lightcone, then opens each page in a browser context that has the session and no cache. Bytes are
those of Chromium's network layer, headers included. Times are medians of the visits. Names what could not be loaded.
"""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from playwright.sync_api import Browser, CDPSession, sync_playwright

PAGES = ("/", "/admin/", "/docs", "/sign-in")
PAINTS = """Promise.all(["paint", "largest-contentful-paint"].map((type) => new Promise((done) => {
  new PerformanceObserver((list) => {
    const paints = list.getEntries().filter(({ name }) => name !== "first-paint");
    if (paints.length) done(paints.at(-1).startTime);
  }).observe({ type, buffered: true });
})))"""


@dataclass
class Visit:
    """What one page loaded. `kinds`: bytes by the kind of the resource, as Chromium names it."""

    kinds: Counter[str] = field(default_factory=Counter)
    num_requests: int = 0
    failures: list[str] = field(default_factory=list)
    first_paint_ms: float = 0.0
    largest_paint_ms: float = 0.0
    _kind_of: dict[str, str] = field(default_factory=dict)

    def follow(self, session: CDPSession) -> None:
        session.on("Network.responseReceived", self._note_response)
        session.on("Network.loadingFinished", self._note_end)
        session.send("Network.enable")

    def _note_response(self, event: dict) -> None:
        self._kind_of[event["requestId"]] = event["type"]
        response = event["response"]
        if response["status"] >= 400:
            self.failures.append(f"{response['status']} {response['url']}")

    def _note_end(self, event: dict) -> None:
        self.num_requests += 1
        self.kinds[self._kind_of.get(event["requestId"], "Other")] += int(event["encodedDataLength"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--user", default="admin")
    parser.add_argument("--password", required=True)
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("pages", nargs="*", default=PAGES, metavar="PATH")
    options = parser.parse_args()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        cookies = _signed_in(browser, options.url, options.user, options.password)
        for path in options.pages:
            _report(path, [_visit(browser, options.url + path, cookies) for _ in range(options.visits)])
        browser.close()


def _signed_in(browser: Browser, url: str, user: str, password: str) -> list[dict]:
    """Return the cookies of a session."""
    page = browser.new_page()
    page.goto(f"{url}/sign-in")
    page.fill("#id_username", user)
    page.fill("#id_password", password)
    with page.expect_navigation(url=f"{url}/"):
        page.click("button[type=submit]")
    cookies = page.context.cookies()
    page.context.close()
    return cookies


def _visit(browser: Browser, url: str, cookies: list[dict]) -> Visit:
    visit = Visit()
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    if not url.endswith("/sign-in"):
        context.add_cookies(cookies)
    page = context.new_page()
    page.on("console", lambda message: visit.failures.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: visit.failures.append(str(error)))
    visit.follow(context.new_cdp_session(page))
    page.goto(url, wait_until="networkidle")
    visit.first_paint_ms, visit.largest_paint_ms = page.evaluate(PAINTS)
    context.close()
    return visit


def _report(path: str, visits: list[Visit]) -> None:
    last = visits[-1]
    kinds = ", ".join(f"{kind} {num_bytes / 1000:.1f}" for kind, num_bytes in last.kinds.most_common())
    total = sum(last.kinds.values()) / 1000
    first_ms = median(visit.first_paint_ms for visit in visits)
    largest_ms = median(visit.largest_paint_ms for visit in visits)
    paints = f"first paint {first_ms:4.0f} ms, largest {largest_ms:4.0f} ms"
    print(f"{path:10} {last.num_requests:3} requests {total:7.1f} kB  {paints}  ({kinds})")
    for failure in sorted(set(last.failures)):
        print(f"           !!! {failure}")


if __name__ == "__main__":
    main()
