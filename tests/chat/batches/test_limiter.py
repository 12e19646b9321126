"""The limiter of a batch: additive increase, multiplicative decrease, and pauses."""

from __future__ import annotations

import asyncio

from chat.batches.limiter import AimdLimiter


async def enter(pace: AimdLimiter, entered: list[int], number: int, leave: asyncio.Event) -> None:
    async with pace.permit():
        entered.append(number)
        await leave.wait()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_at_most_the_allowed_number_enter_at_once() -> None:
    pace, entered, leave = AimdLimiter(2), [], asyncio.Event()
    tasks = [asyncio.create_task(enter(pace, entered, number, leave)) for number in range(3)]
    await turns()
    assert entered == [0, 1]
    leave.set()
    await asyncio.gather(*tasks)
    assert entered == [0, 1, 2]


async def test_a_refusal_halves_the_limit_and_each_answer_adds_one() -> None:
    pace = AimdLimiter(8)
    seen = []
    for is_refused in (True, True, True, True, False, False):
        if is_refused:
            pace.back_off(0.0)
        else:
            pace.grow()
        seen.append(pace.allowed)
    assert seen == [4, 2, 1, 1, 2, 3]
    for _ in range(20):
        pace.grow()
    assert pace.allowed == 8


async def test_set_most_caps_the_limit() -> None:
    pace = AimdLimiter(8)
    pace.set_most(3)
    assert pace.allowed == 3
    pace.back_off(0.0)
    assert pace.allowed == 1
    pace.set_most(2)
    for _ in range(5):
        pace.grow()
    assert pace.allowed == 2


async def test_nothing_enters_during_a_pause() -> None:
    pace, entered, leave = AimdLimiter(2), [], asyncio.Event()
    pace.back_off(3600.0)
    task = asyncio.create_task(enter(pace, entered, 0, leave))
    await turns()
    assert entered == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_pause_ends_by_itself() -> None:
    pace, entered, leave = AimdLimiter(2), [], asyncio.Event()
    leave.set()
    pace.back_off(0.01)
    async with asyncio.timeout(5):
        await enter(pace, entered, 0, leave)
    assert entered == [0]
