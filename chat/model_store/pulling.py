"""What a pull of OWNER/NAME[:FORMAT] fetches, and under which name it is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chat.machine import memory_of
from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore
from chat.model_store.hub import Choice, Hub, Progress, Repository, choose, model_pull
from chat.model_store.manifest import Manifest, name_check


@dataclass(frozen=True, slots=True)
class PullPlan:
    """A pull whose repository, commit and files are known."""

    hub: Hub
    repository: Repository
    choice: Choice
    name: str

    def run(self, store: ModelStore, on_progress: Callable[[Progress], None]) -> Manifest:
        """Fetch the files, or go on where an earlier try stopped. Raises StoreError."""
        return model_pull(store, self.hub, self.repository, self.choice, self.name, on_progress)


def pull_plan(asked: str, *, revision: str, name: str, token: str, device: str) -> PullPlan:
    """Ask the hub for the repository and choose a format for the device, unless one is named. Raises StoreError."""
    place, _, format = asked.partition(":")
    if name:
        name_check(name)
    hub = Hub(token)
    repository = hub.repository(place, revision)
    try:
        choice = choose(repository, format, device, memory_of(device) if not format else 0)
    except LookupError as error:
        raise StoreError(f"{error}: name the format, as OWNER/NAME:FORMAT.") from error
    of_format = choice.format.rpartition("/")[2]
    stored_as = name or f"{place.rpartition('/')[2].removesuffix('-GGUF')}:{of_format}"
    return PullPlan(hub, repository, choice, stored_as)
