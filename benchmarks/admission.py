"""Decisions of admission per second on one core of Valkey, with every limit on.

    python benchmarks/admission.py [--decisions 20000] [--batch 200]

Starts a private Valkey. Each request counts to five scopes with six rates, a concurrency and a share of the queue each,
and to `budgets` hard budgets; every run is admitted and then ended. Prints decisions per second of Valkey's processor
time, as one Valkey decides for all web processes: of all, and of the tenth of batches that other work on the machine
disturbed least. For nothing on, for one key's limits and for all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import redis  # noqa: E402

from chat.relay.state import runs  # noqa: E402
from chat.relay.state.keys import Keys, model_slug, run_id_create  # noqa: E402
from chat.relay.state.meters import (  # noqa: E402
    BudgetMeter,
    Cost,
    Measure,
    Period,
    Rate,
    Scope,
    ScopeKind,
    budgets_plain,
    scopes_plain,
)
from lightcone_site.serve.child import Child  # noqa: E402
from lightcone_site.serve.embedded_valkey import is_answering, valkey_spec  # noqa: E402

MODEL = "large"
RATES = tuple(
    Rate(measure, period, 10**9)
    for measure, period in (
        (Measure.REQUESTS, Period.MINUTE),
        (Measure.REQUESTS, Period.DAY),
        (Measure.TOKENS, Period.MINUTE),
        (Measure.INPUT, Period.MINUTE),
        (Measure.OUTPUT, Period.MINUTE),
        (Measure.TOKENS, Period.DAY),
    )
)
KEY = (Scope(ScopeKind.KEY, "key1", "", RATES[:1] + RATES[2:3], max_live=10**6),)
ALL = tuple(
    Scope(kind, str(kind), "", RATES, max_live=10**6, queue_percent=0 if kind is ScopeKind.MODEL else 90)
    for kind in ScopeKind
)
DECISIONS_PER_MS = 5
"""By the clock that the scripts are told."""
COST = Cost(1, 100, 200, 1_000, 512)


@contextmanager
def valkey() -> Iterator[tuple[redis.Redis, int]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        socket = place / "run" / "valkey.sock"
        child = Child(valkey_spec(data_dir=place, socket_path=socket, log_path=place / "log", max_bytes=2**30))
        child.start(time.monotonic())
        while not is_answering(socket):
            time.sleep(0.01)
        with redis.Redis(unix_socket_path=str(socket)) as client:
            yield client, client.info("server")["process_id"]
        child.kill()


def processor_s(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def measure(client: redis.Redis, pid: int, title: str, scopes: tuple[Scope, ...], num_budgets: int) -> None:
    """Admit and end runs, batch by batch, and print both rates."""
    client.flushall()
    keys, slug = Keys("b"), model_slug(MODEL)
    client.sadd(keys.model_workers(slug), "w")
    client.hset(keys.worker("w"), mapping={"state": "ready", "seats": 10**6})
    budgets = tuple(BudgetMeter(number, "all", 0, 10**15) for number in range(num_budgets))
    for budget in budgets:
        client.hset(keys.budget(budget.budget_id, "all"), "spent", 0)
    admit, finish = client.script_load(runs.ADMIT), client.script_load(runs.FINISH)
    plain, (windows, prices) = scopes_plain(scopes, keys, slug), budgets_plain(budgets, keys)
    meta = {"slug": slug, "about": "{}" * 200, "web:1": "c"}
    fields = [item for pair in meta.items() for item in pair]
    took: tuple[list[float], list[float]] = [], []
    for _ in range(ARGUMENTS.decisions // ARGUMENTS.batch):
        ids = [run_id_create() for _ in range(ARGUMENTS.batch)]
        for step in (0, 1):
            pipe = client.pipeline(transaction=False)
            began_ms = int(time.time() * 1000)
            for number, run_id in enumerate(ids):
                now = began_ms + number // DECISIONS_PER_MS
                if step == 0:
                    names = (keys.meta(run_id), keys.request(run_id), keys.model_workers(slug), keys.model_live(slug))
                    names += (keys.queued, keys.web_runs("1"), keys.tasks(slug), keys.resume_context(run_id))
                    names += (keys.model_tenants(slug), keys.demand(slug), "", keys.memory)
                    names += (*plain.meters, keys.tenant_live(slug, "1"), *plain.lives, *windows)
                    pipe.evalsha(
                        *(admit, len(names), *names, now, run_id, b"x" * 500, plain.limits, COST.packed),
                        *(prices, COST.packed_size),
                        *(10**6, 120_000, keys.worker_prefix, 86_400_000, b"task", b"", "1", *fields),
                    )
                else:
                    names = (keys.meta(run_id), keys.log(run_id), keys.request(run_id), keys.usage)
                    names += (keys.model_live(slug), keys.queued, keys.worker_runs("w"), keys.unread)
                    names += (keys.resume_context(run_id),)
                    pipe.evalsha(
                        *(finish, len(names), *names, run_id, 1, "1-1", b"e" * 100, b"r" * 300),
                        *(90, 0, 150, 0, 600_000, now, b"", 10**6),
                    )
            begin = processor_s(pid)
            answers = pipe.execute()
            took[step].append(processor_s(pid) - begin)
            assert {answer[0] if step == 0 else answer for answer in answers} == {b"go" if step == 0 else b"ended"}
        client.delete(keys.usage, keys.tasks(slug), keys.web_runs("1"))
    rates = []
    for times in map(sorted, took):
        tenth = times[: -(-len(times) // 10)]
        rates += [ARGUMENTS.batch * len(some) / sum(some) for some in (times, tenth)]
    print(f"| {title} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |", flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--decisions", type=int, default=20_000)
parser.add_argument("--batch", type=int, default=200)
ARGUMENTS = parser.parse_args()

if __name__ == "__main__":
    print("| limits | admitted a second of Valkey's core | least disturbed | ended | least disturbed |")
    print("| --- | --- | --- | --- | --- |")
    with valkey() as (client, pid):
        measure(client, pid, "none", (), 0)
        measure(client, pid, "one key: 3", KEY, 0)
        measure(client, pid, "five scopes: 39", ALL, 0)
        measure(client, pid, "five scopes, 5 hard budgets: 44", ALL, 5)
        measure(client, pid, "five scopes, 25 hard budgets: 64", ALL, 25)
