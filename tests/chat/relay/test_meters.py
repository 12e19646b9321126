"""Meters against a slow reference: any order of admissions, ends, crashes, changes of limits and of the clock."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.generation.limits import LimitExceeded, admission_error
from chat.relay.state.meters import BudgetMeter, Cost, Measure, Period, Rate, Scope, ScopeKind
from chat.relay.state.runs import LIVE_LEASE_MS, AdmissionResult, RunCompletion
from tests.chat.relay.world import MODEL, World

SLACK = Fraction(1, 10**6)
RATES = [
    Rate(measure, period, limit)
    for measure, period, limit in (
        (Measure.REQUESTS, Period.MINUTE, 3),
        (Measure.REQUESTS, Period.DAY, 7),
        (Measure.INPUT, Period.MINUTE, 40),
        (Measure.OUTPUT, Period.MINUTE, 60),
        (Measure.TOKENS, Period.MINUTE, 90),
        (Measure.TOKENS, Period.DAY, 300),
    )
]
ORG = Scope(ScopeKind.ORG, "org:1", "The organisation", tuple(RATES[3:]), max_live=4)
KEY = Scope(ScopeKind.KEY, "key1", "", tuple(RATES), max_live=2)
LOWERED = Scope(ScopeKind.KEY, "key1", "", tuple(Rate(rate.measure, rate.period, 2) for rate in RATES), max_live=1)
RAISED = Scope(ScopeKind.KEY, "key1", "", tuple(replace(rate, limit=3 * rate.limit) for rate in RATES), max_live=3)
KEYS_OF = {"admit": KEY, "lowered": LOWERED, "raised": RAISED}


@dataclass
class SlowRate:
    """What is used of a rate, in whole fractions."""

    used: Fraction = Fraction(0)
    at: int = 0
    limit: int = 0

    def read(self, rate: Rate, now: int) -> Fraction:
        if self.limit == 0:
            self.used, self.at, self.limit = Fraction(0), now, rate.limit
        if self.limit > rate.limit:
            self.used *= Fraction(rate.limit, self.limit)
        if self.at > now + rate.period.ms:
            self.at = now
        given_back = Fraction(max(0, now - self.at) * rate.limit, rate.period.ms)
        self.used, self.at, self.limit = max(Fraction(0), self.used - given_back), max(self.at, now), rate.limit
        return self.used


@dataclass
class SlowMeters:
    """The reference: one rate after another, without scripts."""

    rates: dict[tuple[str, int], SlowRate] = field(default_factory=dict)
    live: dict[str, dict[str, int]] = field(default_factory=dict)

    def _level(self, scope: Scope, rate: Rate, now: int) -> tuple[SlowRate, Fraction]:
        held = self.rates.get((scope.name, rate.slot))
        copy = SlowRate() if held is None else SlowRate(held.used, held.at, held.limit)
        return copy, copy.read(rate, now)

    def admit(self, run_id: str, scopes: tuple[Scope, ...], cost: Cost, now: int) -> bool:
        for scope in scopes:
            for rate in scope.rates:
                _, used = self._level(scope, rate, now)
                if used + min(cost.by_measure[rate.measure - 1], rate.limit) - rate.limit > SLACK:
                    return False
            live = self.live.setdefault(scope.name, {})
            for lapsed in [name for name, end in live.items() if end <= now]:
                del live[lapsed]
            if len(live) >= scope.max_live:
                return False
        self._add(scopes, cost.by_measure, now)
        for scope in scopes:
            self.live[scope.name][run_id] = now + LIVE_LEASE_MS
        return True

    def end(self, run_id: str, scopes: tuple[Scope, ...], cost: Cost, used: tuple[int, int], now: int) -> None:
        """Settle by the limits that are held: those of the run's admission may be others."""
        _, reserved_in, reserved_out, reserved = cost.by_measure
        less = (0, used[0] - reserved_in, used[1] - reserved_out, sum(used) - reserved)
        for scope in scopes:
            for rate in scope.rates:
                held = self.rates[scope.name, rate.slot]
                held.used = max(Fraction(0), held.read(replace(rate, limit=held.limit), now) + less[rate.measure - 1])
            self.live[scope.name].pop(run_id, None)

    def _add(self, scopes: tuple[Scope, ...], costs: tuple[int, ...], now: int) -> None:
        for scope in scopes:
            for rate in scope.rates:
                level, used = self._level(scope, rate, now)
                level.used = max(Fraction(0), used + costs[rate.measure - 1])
                self.rates[scope.name, rate.slot] = level


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.integers(0, 60), st.integers(0, 60)),
        st.tuples(st.just("lowered"), st.integers(0, 60), st.integers(0, 60)),
        st.tuples(st.just("raised"), st.integers(0, 60), st.integers(0, 60)),
        st.tuples(st.just("end"), st.integers(0, 100), st.integers(0, 100)),
        st.tuples(st.just("crash"), st.just(0), st.just(0)),
        st.tuples(st.just("clock"), st.sampled_from([1, 7, 20, 61, 130, 3_600, 90_000, -5, -4_000]), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.slow
@given(steps=STEPS)
def test_meters_decide_as_the_slow_reference_does(valkey: str, steps: list[tuple[str, int, int]]) -> None:
    asyncio.run(_compare(valkey, steps))


async def _compare(url: str, steps: list[tuple[str, int, int]]) -> None:
    world = World(url, f"test-{secrets.token_hex(4)}")
    try:
        web = await world.web()
        await world.worker()
        slow, live = SlowMeters(), []
        for word, first, second in steps:
            now = int(world.clock() * 1000)
            if word == "clock":
                world.clock.now += first
                await world.publishers[0].beat()
            elif word == "end" and live:
                run_id, scopes, cost = live.pop(0)
                slow.end(run_id, scopes, cost, (first, second), now)
                record = {"prompt_tokens": first, "cached_tokens": 0, "completion_tokens": second}
                assert await world.runs.finish(RunCompletion(run_id, 1, MODEL, record=record)) == "ended"
            elif word == "crash" and live:
                live.pop(0)  # nothing tells of its end
            elif word in KEYS_OF:
                scopes, cost = (KEYS_OF[word], ORG), Cost(1, first, second)
                admission = world.admission(scopes=scopes, cost=cost, max_waiting=10_000)
                result = await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
                run_id = admission.request.run_id
                assert (result.decision == "go") == slow.admit(run_id, scopes, cost, now), result
                if result.decision == "go":
                    live.append((run_id, scopes, cost))
    finally:
        await world.close()


async def test_the_ends_of_runs_under_an_old_limit_do_not_rescale_what_is_used(world: World) -> None:
    """Each end after a raise halved what was used: five left 59,375 of 1.9 million."""
    web = await world.web()
    await world.worker()
    old, new = (
        Scope(ScopeKind.KEY, "key1", "", (Rate(Measure.TOKENS, Period.DAY, limit),)) for limit in (1_000_000, 2_000_000)
    )

    async def admit(scope: Scope, tokens: int) -> tuple[str, AdmissionResult]:
        admission = world.admission(scopes=(scope,), cost=Cost(1, tokens), max_waiting=10_000)
        result = await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
        assert result.decision == "go"
        return admission.request.run_id, result

    running = [(await admit(old, 0))[0] for _ in range(5)]
    _, result = await admit(new, 1_900_000)
    for run_id in running:
        assert await world.runs.finish(RunCompletion(run_id, 1, MODEL)) == "ended"
        _, result = await admit(new, 0)
    assert (result.tokens.limit, result.tokens.left) == (2_000_000, 100_000)


async def test_a_limit_that_is_taken_away_and_set_again_knows_what_was_used(world: World) -> None:
    web = await world.web()
    await world.worker()
    day, minute = Rate(Measure.TOKENS, Period.DAY, 1_000), Rate(Measure.REQUESTS, Period.MINUTE, 10)
    lefts = []
    for rates in ((day, minute), (minute,), (day, minute)):
        scope = Scope(ScopeKind.KEY, "key1", "", rates)
        admission = world.admission(scopes=(scope,), cost=Cost(1, 400))
        lefts.append((await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)).tokens.left)
    assert lefts == [600, 0, 200]


async def test_the_tokens_of_a_day_keep_their_meter_for_as_long_as_they_are_owed(world: World) -> None:
    web = await world.web()
    await world.worker()
    scope = Scope(ScopeKind.KEY, "key1", "", (Rate(Measure.TOKENS, Period.DAY, 100),))
    for cost, days in ((Cost(1, 1), 25 / 24), (Cost(1, 10), 25 / 24)):
        admission = world.admission(scopes=(scope,), cost=cost)
        await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
        assert await world.client.pttl(world.keys.meter("key1")) == pytest.approx(days * 86_400_000, rel=0.001)
    record = {"prompt_tokens": 490, "cached_tokens": 0, "completion_tokens": 0}
    assert await world.runs.finish(RunCompletion(admission.request.run_id, 1, MODEL, record=record)) == "ended"
    assert await world.client.pttl(world.keys.meter("key1")) == pytest.approx(4.91 * 86_400_000, rel=0.001)


async def test_a_run_that_an_older_version_admitted_ends_and_frees_its_places(world: World) -> None:
    web = await world.web()
    await world.worker()
    scope = Scope(ScopeKind.KEY, "key1", "", (Rate(Measure.REQUESTS, Period.MINUTE, 10),), max_live=1)
    admission = world.admission(scopes=(scope,))
    assert (await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)).decision == "go"
    meta = world.keys.meta(admission.request.run_id)
    await world.client.hdel(meta, "meters", "limits")
    old = [["x:admit:key1:rates", world.keys.admit_live("key1"), 1, "x:admit:key1:live:tiny", 0, ["1m", 10, 60_000, 1]]]
    fields = {"scopes": msgpack.packb(old), "costs": msgpack.packb((1, 10, 0, 10)), "budgets": msgpack.packb([])}
    await world.client.hset(meta, mapping=fields)
    assert await world.runs.finish(RunCompletion(admission.request.run_id, 1, MODEL)) == "ended"
    again = world.admission(scopes=(scope,))
    assert (await world.runs.admit(again, web_id=web.web_id, channel=web.channel)).decision == "go"


def budget(amount: int, **changes: Any) -> BudgetMeter:
    return BudgetMeter(**{"budget_id": 1, "window": "2026-11", "ends_at_ms": 0, "amount": amount, **changes})


@pytest.mark.slow
@given(
    amount=st.integers(1, 400),
    steps=st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 60), st.booleans(), st.floats(0, 1), st.booleans()), max_size=25
    ),
)
def test_no_order_of_runs_spends_more_than_a_hard_budget(
    valkey: str, amount: int, steps: list[tuple[int, int, bool, float, bool]]
) -> None:
    asyncio.run(_spend(valkey, amount, steps))


async def _spend(url: str, amount: int, steps: list[tuple[int, int, bool, float, bool]]) -> None:
    """Admit and end runs as they come. None uses more than its prompt's bound and the limit of its answer."""
    world = World(url, f"test-{secrets.token_hex(4)}")
    try:
        web = await world.web()
        await world.worker()
        meter = budget(amount)
        key = world.keys.budget(1, meter.window)
        await world.client.hset(key, "spent", 0)
        spent, live = 0, []
        for prompt, answer, is_open, share, ends in steps:
            cost = Cost(1, input_bound=prompt, output_bound=-1 if is_open else answer, is_open=is_open)
            admission = world.admission(scopes=(), cost=cost, budgets=(meter,), max_waiting=10_000)
            result = await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
            least = prompt + (1 if is_open else answer)
            held = sum(reserved for _, _, _, reserved in live)
            assert (result.decision == "go") == (spent + held + least <= amount), result
            if result.decision == "go":
                cap = result.cap if is_open else answer
                assert spent + held + prompt + cap <= amount
                live.append((admission.request.run_id, prompt, int(cap * share), prompt + cap))
            if ends and live:
                run_id, used, made, _ = live.pop(0)
                record = {"prompt_tokens": used, "cached_tokens": 0, "completion_tokens": made}
                assert await world.runs.finish(RunCompletion(run_id, 1, MODEL, record=record)) == "ended"
                spent += used + made
            figures = await world.client.hmget(key, "spent", "held")
            assert [int(figure or 0) for figure in figures] == [spent, sum(one[3] for one in live)]
            assert spent <= amount
    finally:
        await world.close()


async def test_two_hundred_admissions_at_once_never_exceed_a_budget_and_reservations_return(world: World) -> None:
    web = await world.web()
    await world.worker()
    meter = budget(1_000)
    key = world.keys.budget(1, meter.window)
    await world.client.hset(key, "spent", 900)
    cost = Cost(1, input_bound=10, output_bound=20)
    admissions = [world.admission(scopes=(), cost=cost, budgets=(meter,), max_waiting=10_000) for _ in range(200)]
    results = await asyncio.gather(
        *(world.runs.admit(one, web_id=web.web_id, channel=web.channel) for one in admissions)
    )
    words = [result.decision for result in results]
    assert (words.count("go"), words.count("held")) == (3, 197)
    record = {"prompt_tokens": 10, "cached_tokens": 0, "completion_tokens": 20}
    for admission, result in zip(admissions, results, strict=True):
        if result.decision == "go":
            await world.runs.finish(RunCompletion(admission.request.run_id, 1, MODEL, record=record))
    assert await world.client.hmget(key, "spent", "held") == [b"990", b"0"]
    last = world.admission(scopes=(), cost=cost, budgets=(meter,))
    assert (await world.runs.admit(last, web_id=web.web_id, channel=web.channel)).decision == "quota"


async def test_a_budget_that_valkey_does_not_know_admits_nothing(world: World) -> None:
    web = await world.web()
    await world.worker()
    admission = world.admission(scopes=(), budgets=(budget(10**6),))
    result = await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
    assert (result.decision, result.scope) == ("unknown", 1)


@pytest.mark.parametrize(("min_tokens", "decision"), [(0, "go"), (97, "go"), (98, "quota"), (500, "quota")])
async def test_a_budget_that_leaves_less_than_the_least_answer_refuses(
    world: World, min_tokens: int, decision: str
) -> None:
    """It capped the answer below the request's min_tokens, so that the worker answered 400."""
    web = await world.web()
    await world.worker()
    meter = budget(1_000)
    await world.client.hset(world.keys.budget(1, meter.window), "spent", 893)
    cost = Cost(1, input_bound=10, output_bound=-1, is_open=True, min_tokens=min_tokens)
    admission = world.admission(scopes=(), cost=cost, budgets=(meter,))
    result = await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
    assert (result.decision, result.cap) == (decision, 97 if decision == "go" else -1)


async def test_a_spent_budget_refuses_what_costs_nothing(world: World) -> None:
    web = await world.web()
    await world.worker()
    meter = budget(1_000, input_price=0.0, cached_price=0.0, output_price=0.0, reasoning_price=0.0)
    for spent, decision in ((999, "go"), (1_000, "quota")):
        await world.client.hset(world.keys.budget(1, meter.window), "spent", spent)
        admission = world.admission(scopes=(), cost=Cost(1, input_bound=10, output_bound=20), budgets=(meter,))
        assert (await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)).decision == decision


async def test_a_request_of_more_than_the_whole_budget_is_not_told_to_wait(world: World) -> None:
    web = await world.web()
    await world.worker()
    meter = budget(1_000, ends_at_ms=1_800_000_000_000, title="small: 1,000 tokens per month")
    await world.client.hset(world.keys.budget(1, meter.window), "spent", 0)
    cost = Cost(1, input_bound=10, output_bound=991)
    admission = world.admission(scopes=(), cost=cost, budgets=(meter,))
    result = await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
    error = admission_error(MODEL, result, {}, (), (meter,))
    assert isinstance(error, LimitExceeded)
    assert (error.kind, error.code) == ("beyond", "insufficient_quota")
    assert "more than the whole budget “small: 1,000 tokens per month”" in error.message
    assert "reopens" not in error.message
    assert "smaller max_tokens" in error.message


async def test_the_tightest_limit_refuses_and_is_named(world: World) -> None:
    web = await world.web()
    await world.worker()
    org = Scope(ScopeKind.ORG, "org:1", "The organisation", (Rate(Measure.REQUESTS, Period.DAY, 1),))
    key = Scope(ScopeKind.KEY, "key1", "", (Rate(Measure.REQUESTS, Period.MINUTE, 1),), max_live=1)
    for decision in ("go", "requests"):
        admission = world.admission(scopes=(key, org))
        result = await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
        assert result.decision == decision
    assert (result.scope, result.rate) == (2, 1), "the day is longer than the minute"
    assert result.wait_s == 86_400


async def test_a_share_of_the_queue_leaves_places_to_others(world: World) -> None:
    web = await world.web()
    await world.worker()  # 4 sequences at once
    project = Scope(ScopeKind.PROJECT, "project:1", "The project", queue_percent=50)
    words = []
    for _ in range(4):
        admission = world.admission(scopes=(project,), max_waiting=2)
        words.append((await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)).decision)
    assert words == ["go"] * 3 + ["share"]
