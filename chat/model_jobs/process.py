"""`python -m chat.model_jobs.process`: one job on a stored model, in a process of its own that can be killed.

It reads one line of JSON, the fields of `Order`, from its standard input, and writes lines of JSON:
`{"name", "revision", "message", "num_bytes"}` once it is known what is fetched (`revision`: the commit, which another
try takes too), then `{"phase", "num_done", "num_bytes", "rate"}`, `{"stored": name}` for each model, and last
`{"done": true, "message"}` or `{"error"}`. It ends when its standard input does, so it never outlives its runner. It
needs no Django.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore
from chat.model_store.local import import_note, model_import, models_at

SAY_EVERY_S = 0.3
LEFT_CODE = 3


@dataclass(frozen=True, slots=True)
class Order:
    kind: str
    asked: str
    revision: str
    name: str
    store: str
    token: str
    device: str


def say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def pull(order: Order, store: ModelStore) -> None:
    from chat.model_store.pulling import pull_plan  # imports what other jobs do not need

    plan = pull_plan(
        order.asked, revision=order.revision or "main", name=order.name, token=order.token, device=order.device
    )
    choice, commit = plan.choice, plan.repository.commit
    text = f"{choice.format} at {commit[:12]} ({choice.reason})."
    say(name=plan.name, revision=commit, num_bytes=choice.num_bytes, message=text)
    if not _has(store, plan.name, plan.repository.name, commit):
        plan.run(store, Shown())
    say(stored=plan.name)
    say(done=True, message=text)


def import_(order: Order, store: ModelStore) -> None:
    found = models_at(Path(order.asked).expanduser())
    if order.name and len(found) > 1:
        raise StoreError(f"A name is for one model, and there are {len(found)} at {order.asked}: leave it out.")
    failed, notes = [], []
    for model in found:
        say(phase=f"importing {model.name}"[:40], num_done=0, num_bytes=0, rate=0.0)
        try:
            name = order.name or model.name
            if not _has(store, name, model.source.place):
                notes.append(import_note(model, model_import(store, model, order.name)))
            say(stored=name)
        except StoreError as error:
            failed.append(f"{model.name}: {error}")
    if len(failed) == len(found):
        raise StoreError(" ".join(failed))
    stored = f"{len(found) - len(failed)} of {len(found)} models are stored."
    say(done=True, message=" ".join([stored, *failed, *filter(None, notes)]))


def check(order: Order, store: ModelStore) -> None:
    say(phase="comparing hashes", num_done=0, num_bytes=store.get(order.asked).num_bytes, rate=0.0)
    if problems := store.damaged(order.asked):
        raise StoreError(f"{' '.join(problems)} Remove the model and pull it again.")
    say(done=True, message="All files are as they were stored.")


def copy(order: Order, store: ModelStore) -> None:
    manifest = store.get(order.asked)
    say(phase="copying", num_done=0, num_bytes=manifest.num_bytes, rate=0.0)
    # An earlier try of the same job may have copied it.
    if not (store.has(order.name) and store.get(order.name).files == manifest.files):
        store.copy(order.asked, order.name)
    say(stored=order.name)
    say(done=True, message=f"{order.name} has the files of {order.asked}.")


KINDS = {"pull": pull, "import": import_, "check": check, "copy": copy}


def _has(store: ModelStore, name: str, place: str, revision: str = "") -> bool:
    """Return True for what an earlier try of the same job has stored."""
    if not store.has(name):
        return False
    source = store.get(name).source
    return source.place == place and revision in ("", source.revision)


class Shown:
    """Says how far a pull is, not too often."""

    def __init__(self) -> None:
        self._said_at, self._phase = 0.0, ""

    def __call__(self, progress: Any) -> None:
        now = time.monotonic()
        is_whole = progress.done >= progress.num_bytes
        if progress.phase == self._phase and now - self._said_at < SAY_EVERY_S and not is_whole:
            return
        self._said_at, self._phase = now, progress.phase
        say(phase=progress.phase, num_done=progress.done, num_bytes=progress.num_bytes, rate=progress.rate)


def _leave_with_the_runner() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _leave(*_: object) -> None:
    """End, and let what is half done be cleared away: half an import is removed, what was fetched is kept."""
    raise SystemExit(LEFT_CODE)


def main() -> int:
    signal.signal(signal.SIGTERM, _leave)
    order = Order(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_leave_with_the_runner, daemon=True).start()
    try:
        KINDS[order.kind](order, ModelStore(Path(order.store)))
    except StoreError as error:
        say(error=str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
