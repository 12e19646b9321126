"""How fast a worker computes and loads, and the log lines that it keeps."""

from __future__ import annotations

import logging
import threading
from typing import Any

from chat.workers.last_lines import LINE_CHARS, LINES, LastLines
from chat.workers.pace import LoadProgress, Pace, pace_between
from engine.messages import CoreStats


def core(**counts: Any) -> CoreStats:
    known = dict.fromkeys(
        ("num_running", "num_waiting", "num_free_blocks", "num_blocks", "num_preemptions", "num_steps"), 0
    ) | {"num_prompt_tokens": 0, "num_cached_tokens": 0}
    return CoreStats(**known | counts)


def test_a_pace_counts_what_was_computed_and_not_what_was_cached() -> None:
    before = core(num_steps=10, num_prompt_tokens=100, num_generated_tokens=20, busy_us=1_000)
    after = core(
        num_steps=14, num_prompt_tokens=300, num_cached_tokens=100, num_generated_tokens=60, busy_us=1_000 + 40_000
    )
    assert pace_between(before, after, 2.0) == Pace(50.0, 20.0, 10.0)


def test_there_is_no_pace_before_the_first_look_or_of_a_new_core() -> None:
    assert pace_between(None, core(), 1.0) == Pace()
    assert pace_between(core(num_steps=5), core(num_steps=1), 1.0) == Pace()
    assert pace_between(core(), core(), 1.0) == Pace()


def test_the_time_left_follows_the_phase() -> None:
    now = [100.0]
    progress = LoadProgress(lambda: now[0])
    progress.note("loading weights", 0.0)
    assert progress.seconds_left == 0.0
    now[0] += 10
    progress.note("loading weights", 0.25)
    assert progress.seconds_left == 30.0
    progress.note("warming up", 0.5)
    assert progress.seconds_left == 0.0


def test_last_lines_are_bounded_masked_and_of_their_model() -> None:
    lines = LastLines()
    logger = logging.Logger("test")
    logger.addHandler(lines)
    for number in range(LINES + 5):
        logger.info("line %d", number)
    logger.info("key lc_abc123_%s\nforged %s", "s" * 40, "x" * 2 * LINE_CHARS)
    thread = threading.Thread(target=logger.error, args=("no such file",), name="host small")
    thread.start()
    thread.join()
    kept = lines.of_process()
    assert len(kept) == LINES
    assert all(len(line) <= LINE_CHARS and "\n" not in line for line in kept)
    assert "s" * 40 not in "".join(kept)
    assert [line.partition(" ")[2] for line in lines.of_model("small")] == ["ERROR no such file"]
    assert lines.of_model("other") == []
