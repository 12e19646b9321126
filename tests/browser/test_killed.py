"""Processes are killed in the middle of an answer: the page says so, and the answer goes on or can be continued."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import set_fields, signed_in_page
from tests.chaos.inspection import pid_of, request_log
from tests.served import ServedLightcone

pytestmark = [pytest.mark.browser, pytest.mark.live, pytest.mark.slow]

NUM_TOKENS = 1000
ANSWER = "#messages > li:nth-child(2)"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    """Yield a server that survives the death of one process."""
    yield from serving(tmp_path_factory.mktemp("killed"))


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[ServedLightcone]:
    """Yield a server of the test's own."""
    yield from serving(tmp_path)


def serving(folder: Path) -> Iterator[ServedLightcone]:
    served = ServedLightcone(folder, {"LIGHTCONE_KV_CACHE_BYTES": str(2**27)})
    with served.running():
        yield served


def answering(chromium: Any, served: ServedLightcone) -> Any:
    """Return a page with a long answer that has begun."""
    page = signed_in_page(chromium, served, [])  # a lost connection is an error of the console
    set_fields(page, f'{{"ignore_eos": true, "max_tokens": {NUM_TOKENS}}}')
    page.fill("#composer-text", "Write a very long story about the sea.")
    page.press("#composer-text", "Enter")
    shown(page).filter(has_text=re.compile(r".{40}")).wait_for()
    return page


def shown(page: Any) -> Any:
    return page.locator(f"{ANSWER} .message-body")


def expect_whole(page: Any, before: str) -> None:
    """The answer reaches its end, with what was shown of it."""
    page.wait_for_selector("#stop", state="detached", timeout=120_000)
    assert page.locator(".message-error:visible").count() == 0
    assert shown(page).inner_text().startswith(before[:40])
    page.wait_for_selector(f"{ANSWER} .message-foot:has-text('{NUM_TOKENS:,} tokens')")
    page.context.close()


def expect_row(served: ServedLightcone, num_rows: int, *, attempts: int) -> None:
    """The log has one more row than so many, of one run that was taken over as often."""
    served.wait_for(lambda: len(request_log(served)) > num_rows, timeout_s=10, what="the row of the run")
    (row,) = request_log(served)[num_rows:]
    assert (row["outcome"], row["completion_tokens"], row["attempts"]) == ("finished", NUM_TOKENS, attempts)


def test_an_answer_continues_after_the_web_process_was_killed(chromium, served: ServedLightcone) -> None:
    """The page kept its text, but did not resume the answer and offered only its deletion."""
    num_rows = len(request_log(served))
    page = answering(chromium, served)
    kill(served, "web")
    page.wait_for_selector("#connection[data-state=lost]")
    expect_whole(page, shown(page).inner_text())
    expect_row(served, num_rows, attempts=1)


@pytest.mark.parametrize(("process", "attempts"), [("core", 1), ("worker", 2)])
def test_an_answer_whose_model_was_killed_is_resumed_and_the_page_says_so(
    chromium, served: ServedLightcone, process: str, attempts: int
) -> None:
    num_rows = len(request_log(served))
    page = answering(chromium, served)
    kill(served, process)
    page.wait_for_selector(f"{ANSWER} .waiting:has-text('Resuming')")
    expect_whole(page, shown(page).inner_text())
    expect_row(served, num_rows, attempts=attempts)


def kill(served: ServedLightcone, process: str) -> None:
    victim = pid_of(served, process)
    assert victim is not None
    os.kill(victim, signal.SIGKILL)


def kill_all_and_start_anew(page: Any, served: ServedLightcone, *, loses_logs: bool) -> str:
    """Return what the page showed of the answer in between."""
    for pid, _ in served.processes_left():
        os.kill(pid, signal.SIGKILL)
    assert served.process is not None
    served.process.wait()
    page.wait_for_selector("#connection[data-state=lost]")
    if loses_logs:
        shutil.rmtree(served.data_dir / "valkey")
    (served.folder / "console.log").unlink()
    served.start()
    served.wait_until_ready()
    before = shown(page).inner_text()
    page.reload()
    return before


def test_an_answer_continues_after_a_restart_of_the_whole_server(chromium, mortal: ServedLightcone) -> None:
    page = answering(chromium, mortal)
    before = kill_all_and_start_anew(page, mortal, loses_logs=False)
    page.wait_for_selector(f"{ANSWER} .block")
    expect_whole(page, before)
    expect_row(mortal, 0, attempts=2)


def test_an_answer_whose_log_was_lost_stands_as_far_as_it_was_shown_and_can_be_continued(
    chromium, mortal: ServedLightcone
) -> None:
    """The page said that what was shown was kept, and showed nothing of it."""
    page = answering(chromium, mortal)
    before = kill_all_and_start_anew(page, mortal, loses_logs=True)
    page.wait_for_selector(f"{ANSWER} .error-acts button:has-text('Continue')", timeout=120_000)
    assert shown(page).inner_text().startswith(before[:40])
    page.click(f"{ANSWER} .error-acts button:has-text('Continue')")
    page.wait_for_selector("#stop")
    page.wait_for_selector("#stop", state="detached", timeout=120_000)
    after = page.locator("#messages > li:last-child .message-body").inner_text()
    assert after.startswith(before[:40])
    assert len(after) > len(before)
    page.context.close()
