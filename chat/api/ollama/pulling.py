"""Pulls of models from the hub: each in a thread of its own, which says how far it is.

A client that leaves stops its pull at the next piece. What was fetched is kept, and the next pull goes on from there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connections

from chat.api.request.fields import bad_value, echo
from chat.catalog.stored_models import stored_model_offer
from chat.errors import INTERNAL_MESSAGE, ApiError
from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore

if TYPE_CHECKING:
    from chat.model_store.hub import Choice, Progress

logger = logging.getLogger(__name__)

MAX_PULLS = 4
"""At once, of a web process."""
SAY_EVERY_S = 0.2
HUBS = ("https://huggingface.co/", "huggingface.co/", "hf.co/")
"""What may stand before a repository."""
LATEST = "latest"
SUCCESS = {"status": "success"}
_places = threading.BoundedSemaphore(MAX_PULLS)


@dataclass(frozen=True, slots=True)
class Asked:
    """A repository of the hub, with `:FORMAT` where one is asked for. `name`: as the client wrote it."""

    name: str
    repository: str


def asked_read(name: str) -> Asked:
    """Return what a name asks for. Raises ApiError for names that are no repository."""
    prefix = next((prefix for prefix in HUBS if name.startswith(prefix)), "")
    repository, _, format_ = name.removeprefix(prefix).partition(":")
    owner, slash, rest = repository.partition("/")
    if not (owner and slash and rest) or "/" in rest:
        message = f"must be OWNER/NAME or OWNER/NAME:FORMAT, a repository of the Hugging Face hub; got {echo(name)}"
        raise bad_value("model", message)
    return Asked(name, repository if format_ in ("", LATEST) else f"{repository}:{format_}")


class PullLeft(Exception):
    """The end of a pull whose client has left."""


class Pull:
    """One pull, which begins at once. Raises ApiError if there are too many.

    `updates` yields what it does, the last SUCCESS; `leave` stops it.
    """

    def __init__(self, asked: Asked) -> None:
        if not _places.acquire(blocking=False):
            raise ApiError(
                "overloaded", f"{MAX_PULLS} models are being pulled: wait for one of them.", retry_after_s=60
            )
        self._asked = asked
        self._updates: asyncio.Queue[dict[str, Any] | ApiError] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._is_left = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"pull {asked.name}", daemon=True)
        self.thread.start()

    async def updates(self) -> AsyncIterator[dict[str, Any]]:
        """Raises ApiError if the pull fails."""
        while True:
            update = await self._updates.get()
            if isinstance(update, ApiError):
                raise update
            yield update
            if update == SUCCESS:
                return

    def leave(self) -> None:
        """Stop the pull, if it still goes on. Any thread may call it."""
        self._is_left.set()

    # In the thread of the pull.

    def _run(self) -> None:
        try:
            self._pull()
        except PullLeft:
            logger.info("The pull of %s stopped, as its client has left; what was fetched is kept", self._asked.name)
        except StoreError as error:
            self._say(bad_value("model", f"could not be pulled: {error}"))
        except ValidationError as error:
            self._say(bad_value("model", f"could not be entered: {' '.join(error.messages)}"))
        except Exception:
            logger.exception("The pull of %s failed", self._asked.name)
            self._say(ApiError("internal_error", INTERNAL_MESSAGE))
        finally:
            connections.close_all()
            _places.release()

    def _pull(self) -> None:
        from chat.model_store.pulling import pull_plan  # imports what only pulls need

        self._say({"status": "pulling manifest"})
        store = ModelStore(settings.LIGHTCONE_MODEL_STORE)
        token, device = settings.LIGHTCONE_HUB_TOKEN, settings.LIGHTCONE_DEVICE
        plan = pull_plan(self._asked.repository, revision="main", name="", token=token, device=device)
        if not store.has(plan.name) or store.get(plan.name).source.place != plan.repository.name:
            plan.run(store, _Said(self, plan.choice))
        self._say({"status": "writing manifest"})
        stored_model_offer(store=store, manifest=store.get(plan.name), name=self._asked.name)
        self._say(SUCCESS)

    def _say(self, update: dict[str, Any] | ApiError) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._updates.put_nowait, update)

    def report(self, update: dict[str, Any]) -> None:
        """Say how far the pull is. Raises PullLeft once nobody listens."""
        if self._is_left.is_set():
            raise PullLeft
        self._say(update)


class _Said:
    """The progress of a pull, at most every `SAY_EVERY_S`, as if all files were one layer."""

    def __init__(self, pull: Pull, choice: Choice) -> None:
        self._pull = pull
        self._phase, self._said_at = "", 0.0
        files = [file.sha256 or file.git_sha1 for file in choice.files]
        self._digest = files[0] if len(files) == 1 else hashlib.sha256("".join(files).encode()).hexdigest()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        is_new, is_whole = progress.phase != self._phase, progress.done >= progress.num_bytes
        if not is_new and not is_whole and now - self._said_at < SAY_EVERY_S:
            return
        self._phase, self._said_at = progress.phase, now
        if progress.phase != "fetching":
            status = {"checking": "verifying sha256 digest"}.get(progress.phase, f"{progress.phase} the model")
            self._pull.report({"status": status})
            return
        layer = {"digest": f"sha256:{self._digest}", "total": progress.num_bytes, "completed": progress.done}
        self._pull.report({"status": f"pulling {self._digest[:12]}", **layer})
