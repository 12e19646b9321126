"""The web process is killed in the middle of an answer: the page reconnects and the same answer continues."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.browser.conftest import set_fields, signed_in_page
from tests.chaos.inspection import pid_of, request_log
from tests.served import ServedLightcone

pytestmark = [pytest.mark.browser, pytest.mark.live, pytest.mark.slow]

NUM_TOKENS = 1000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    served = ServedLightcone(tmp_path_factory.mktemp("killed-web"), {"LIGHTCONE_KV_CACHE_BYTES": str(2**27)})
    with served.running():
        yield served


def test_an_answer_continues_after_the_web_process_was_killed(chromium, served: ServedLightcone) -> None:
    """The page kept its text, but did not resume the answer and offered only its deletion."""
    page = signed_in_page(chromium, served, [])  # a lost connection is an error of the console
    set_fields(page, f'{{"ignore_eos": true, "max_tokens": {NUM_TOKENS}}}')
    page.fill("#composer-text", "Write a very long story about the sea.")
    page.press("#composer-text", "Enter")
    body = page.locator("#messages > li:nth-child(2) .message-body")
    body.filter(has_text=re.compile(r".{40}")).wait_for(timeout=60_000)
    victim = pid_of(served, "web")
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    page.wait_for_selector("#connection[data-state=lost]")
    before = body.inner_text()
    page.wait_for_selector("#stop", state="detached", timeout=120_000)
    assert page.locator(".message-error:visible").count() == 0
    assert body.inner_text().startswith(before[:40])
    assert f"{NUM_TOKENS:,} tokens" in page.inner_text("#messages > li:nth-child(2) .message-foot")
    served.wait_for(lambda: len(request_log(served)) == 1, timeout_s=10, what="the row of the run")
    [row] = request_log(served)
    assert (row["outcome"], row["completion_tokens"], row["attempts"]) == ("finished", NUM_TOKENS, 1)
    page.context.close()
