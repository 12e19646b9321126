"""Models of the Hugging Face hub: which files of a repository to take on this machine, and their way into the store.

`HF_ENDPOINT` names a mirror, as for all programs that use huggingface_hub; `LIGHTCONE_HUB_TOKEN` is the token.
Repositories and their errors are huggingface_hub's, transfers ours: its own begin anew when a process has died, and
take what a server sends beyond the size of a file.
"""

from __future__ import annotations

import errno
import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

import httpx2
from huggingface_hub import HfApi, get_hf_file_metadata, get_session, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore, room_check, sha256_of, store_error
from chat.model_store.inspection import description_of
from chat.model_store.local import FOLDER_FILES, MODULE_FILES, without_doubles
from chat.model_store.manifest import PART, Manifest, Source, path_check
from chat.model_store.projectors import drop_unfitting, projector_among
from engine.gguf_pair import is_beside

MAIN = "main"
PARTS = "parts"
"""A folder, beside that of the files, of those that are not whole yet."""
FOLDER = "safetensors"
QUANTIZATION = re.compile(
    r"(?:^|[._-])((?:UD-)?(?:I?Q\d|TQ\d|MXFP4|NVFP4|BF16|FP16|F16|FP32|F32)[A-Za-z0-9_]*)$", re.IGNORECASE
)
"""How the name of a GGUF file ends, before `.gguf` and the number of a part."""
PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_K_XL", "Q4_0", "IQ4_XS", "IQ4_NL", "Q4_1", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0")
"""Formats for a CPU, best first: four bits read fewest bytes a token at little loss."""
COMMIT = re.compile(r"[0-9a-f]{40}")
BLOCK_BYTES = 1 << 20
RETRIES, RETRY_S = 5, 1.0
"""Tries to go on with a transfer that brings nothing, and the pause before each."""
MEMORY_SHARE = 0.8
"""Of the memory, that the weights may take."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository. `sha256` for large ones, else `git_sha1` of git's blob."""

    path: str
    num_bytes: int
    sha256: str
    git_sha1: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository at one commit."""

    name: str
    commit: str
    asked_revision: str
    licence: str
    files: tuple[RemoteFile, ...]

    def formats(self) -> dict[str, tuple[RemoteFile, ...]]:
        """Return the files of each format that can be served, by its name, or by its file's if several have it."""
        models: dict[str, list[RemoteFile]] = defaultdict(list)
        for file in self.files:
            name = file.path.rpartition("/")[2].lower()
            if name.endswith(".gguf") and not is_beside(name):
                models[PART.sub("", file.path[: -len(".gguf")])].append(file)
        stems: dict[str, list[str]] = defaultdict(list)
        for stem in models:
            label = QUANTIZATION.search(stem.rpartition("/")[2])
            stems[label[1].upper() if label else stem.rpartition("/")[2]].append(stem)
        found = {
            label if len(alike) == 1 else stem: tuple(models[stem]) for label, alike in stems.items() for stem in alike
        }
        top = {file.path: file for file in self.files if "/" not in file.path}
        names = without_doubles([path for path in top if any(fnmatch(path, pattern) for pattern in FOLDER_FILES)])
        if "config.json" in names and any(name.endswith(".safetensors") for name in names):
            modules = (file for file in self.files if any(fnmatch(file.path, pattern) for pattern in MODULE_FILES))
            found[FOLDER] = (*(top[name] for name in names), *(file for file in modules if file.path.count("/") == 1))
        return found

    def with_projector(self, format: str, files: tuple[RemoteFile, ...]) -> tuple[RemoteFile, ...]:
        """Return the files of a format with the projector of the repository, if it is of GGUF files and has one."""
        by_path = {file.path: file for file in self.files if format != FOLDER}
        folder = files[0].path.rpartition("/")[0]
        own = [path for path in by_path if path.rpartition("/")[0] == folder]
        path = projector_among(own) or projector_among(by_path)
        return files if path is None else (*files, by_path[path])


@dataclass(frozen=True, slots=True)
class Choice:
    """What to take of a repository, and why."""

    format: str
    files: tuple[RemoteFile, ...]
    reason: str

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)

    @property
    def model_file(self) -> str:
        """What is loaded of these: the first GGUF file, or empty for the folder."""
        if self.format == FOLDER:
            return ""
        return min(file.path for file in self.files if not is_beside(local_path(file))).rpartition("/")[2]


@dataclass
class Progress:
    """How far a pull is. `on_progress` is called after each change."""

    num_bytes: int
    on_progress: Callable[[Progress], None] = lambda progress: None
    done: int = 0
    phase: str = "fetching"
    started_at: float = field(default_factory=time.monotonic)
    done_before: int = 0
    """Bytes that an earlier try had fetched."""

    def advance(self, count: int) -> None:
        self.done += count
        self.on_progress(self)

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.on_progress(self)

    @property
    def rate(self) -> float:
        """Bytes a second of this try."""
        return max(0, self.done - self.done_before) / max(time.monotonic() - self.started_at, 1e-3)

    @property
    def seconds_left(self) -> float:
        return (self.num_bytes - self.done) / self.rate if self.rate > 0 else float("inf")


class Hub:
    """The hub. `token`: for gated and private repositories, or empty; `endpoint`: a mirror instead of HF_ENDPOINT."""

    def __init__(self, token: str = "", endpoint: str | None = None) -> None:
        self._token: str | bool = token or False
        self._api = HfApi(endpoint, token=self._token)

    def repository(self, name: str, revision: str = MAIN) -> Repository:
        """Look up a repository. Raises StoreError."""
        try:
            info = self._api.model_info(name, revision=revision, files_metadata=True)
        except GatedRepoError as error:
            raise StoreError(self._gated(name)) from error
        except RevisionNotFoundError as error:
            raise StoreError(f"{name} has no revision {revision!r}: use a branch, a tag or a commit of it.") from error
        except RepositoryNotFoundError as error:
            hint = "" if self._token else ", and set LIGHTCONE_HUB_TOKEN if it is private"
            raise StoreError(
                f"There is no repository {name!r} at {self._api.endpoint}: check its name{hint}."
            ) from error
        except HFValidationError as error:
            raise StoreError(f"{name!r} cannot be a repository: write OWNER/NAME, with :FORMAT behind it.") from error
        except (HfHubHTTPError, httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, TypeError) as error:
            raise StoreError(self._offline(error)) from error
        files = tuple(_remote_file(sibling) for sibling in info.siblings or [])
        if not COMMIT.fullmatch(info.sha or ""):
            raise StoreError(f"{self._api.endpoint} does not say which commit of {name} this is: use another mirror.")
        licence = str(info.card_data.get("license") or "") if info.card_data else ""
        return Repository(name, info.sha or "", revision, licence, files)

    def fetch(self, repository: Repository, choice: Choice, folder: Path, progress: Progress) -> None:
        """Bring the chosen files into a folder, and check them. What is there already is kept. Raises StoreError."""
        parts = folder.parent / PARTS
        parts.mkdir(exist_ok=True)
        missing = [file for file in choice.files if not _is_there(folder / local_path(file), file)]
        left = sum(part.stat().st_size for part in parts.iterdir())
        progress.done = progress.done_before = choice.num_bytes - sum(file.num_bytes for file in missing)
        room_check(folder, sum(file.num_bytes for file in missing) - left)
        for file in missing:
            self._fetch_one(repository, file, folder, parts / quote(file.path, safe=""), progress)
        progress.enter("checking")
        for file in choice.files:
            _check(folder / local_path(file), file)

    def _fetch_one(
        self, repository: Repository, file: RemoteFile, folder: Path, part: Path, progress: Progress
    ) -> None:
        """Fetch a file, from where an earlier try was left."""
        url = hf_hub_url(repository.name, file.path, revision=repository.commit, endpoint=self._api.endpoint)
        try:
            found = get_hf_file_metadata(url, token=self._token, endpoint=self._api.endpoint)
            headers = build_hf_headers(token=self._token) | {"Accept-Encoding": "identity"}
            if urlsplit(found.location)[:2] != urlsplit(url)[:2]:
                headers.pop("authorization", None)  # another host, or one without TLS, gets no token of the hub
            with part.open("ab") as target:
                if target.tell() > file.num_bytes:
                    target.truncate(0)
                    target.seek(0)
                progress.done_before += target.tell()
                progress.advance(target.tell())
                _transfer(found.location, headers, target, file, progress)
        except GatedRepoError as error:
            raise StoreError(self._gated(repository.name)) from error
        except (HfHubHTTPError, httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise store_error(folder, error) from error
            raise StoreError(
                f"{file.path} could not be fetched: {_reason(error)}. What is there is kept: pull again to go on."
            ) from error
        place = folder / local_path(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        part.rename(place)

    def _gated(self, name: str) -> str:
        return (
            f"{name} is gated: accept its terms at {self._api.endpoint}/{name}, and set LIGHTCONE_HUB_TOKEN to a token "
            "of that account."
        )

    def _offline(self, error: Exception) -> str:
        return (
            f"{self._api.endpoint} does not answer ({_reason(error)}). Check the network, or name a mirror in "
            "HF_ENDPOINT. `manage.py model list` shows what is here; `manage.py model import PATH` takes files of this "
            "machine."
        )


def _transfer(url: str, headers: dict[str, str], target: BinaryIO, file: RemoteFile, progress: Progress) -> None:
    """Append to a part what it lacks of a file. A connection that breaks is opened again, from there.

    Raises StoreError if the server sends more than the file has, and what httpx2 raises after RETRIES without a byte.
    """
    tries = 0
    while target.tell() < file.num_bytes:
        start = target.tell()
        ranged = headers | ({"Range": f"bytes={start}-"} if start else {})
        try:
            with get_session().stream("GET", url, headers=ranged, follow_redirects=True) as answer:
                hf_raise_for_status(answer)
                if start and answer.status_code != httpx2.codes.PARTIAL_CONTENT:  # ranges are not known here
                    target.truncate(0)
                    target.seek(0)
                    progress.advance(-start)
                for block in answer.iter_bytes(BLOCK_BYTES):
                    if target.tell() + len(block) > file.num_bytes:
                        target.truncate(0)
                        raise StoreError(
                            f"{file.path} has {file.num_bytes:,} bytes, and the server sends more: use another mirror."
                        )
                    target.write(block)
                    progress.advance(len(block))
            if target.tell() == start:
                raise httpx2.RemoteProtocolError("the server sends nothing")
        except httpx2.TransportError:
            tries = tries + 1 if target.tell() <= start else 0
            if tries > RETRIES:
                raise
            time.sleep(RETRY_S)


def choose(repository: Repository, format: str, device: str, memory_bytes: int) -> Choice:
    """Choose the files for this machine, or those of a format that is asked for. Raises StoreError."""
    formats = {name: repository.with_projector(name, files) for name, files in repository.formats().items()}
    sizes = {name: sum(file.num_bytes for file in files) for name, files in formats.items()}
    there = ", ".join(f"{name} ({sizes[name] / 1e9:.2f} GB)" for name in sorted(formats, key=sizes.__getitem__))
    if not formats:
        raise StoreError(f"{repository.name} holds no GGUF file and no folder of safetensors: it cannot be served.")
    if format:
        folded = {name.casefold(): name for name in formats}
        if (name := folded.get(format.casefold())) is None:
            raise StoreError(f"{repository.name} has no format {format!r}. There are: {there}.")
        return Choice(name, formats[name], "as asked")
    most = int(memory_bytes * MEMORY_SHARE)
    order = [*([FOLDER] if device == "cuda" else []), *PREFERRED, *([] if device == "cuda" else [FOLDER])]
    rank = {name: place for place, name in enumerate(order)}
    plain = {name: name.removeprefix("UD-") for name in formats}
    known = sorted((name for name in formats if plain[name] in rank), key=lambda name: rank[plain[name]])
    rest = sorted(formats.keys() - set(known), key=sizes.__getitem__, reverse=True)
    for name in (*known, *rest):
        if sizes[name] <= most:
            return Choice(name, formats[name], _reason_for(name, device, sizes[name], memory_bytes))
    least = min(sizes, key=sizes.__getitem__)
    raise StoreError(
        f"{repository.name} does not fit: its smallest format, {least}, takes {sizes[least]:,} bytes, and weights may "
        f"take {most:,} of the {memory_bytes:,} of this machine's {'GPU' if device == 'cuda' else 'memory'}. "
        f"There are: {there}. Write {repository.name}:{least} to pull it all the same."
    )


def model_pull(
    store: ModelStore,
    hub: Hub,
    repository: Repository,
    choice: Choice,
    name: str,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Manifest:
    """Bring the chosen files of a repository into the store. Raises StoreError; what is fetched then is kept."""
    with store.locked(name):
        folder = store.begin(name, f"{repository.name}:{choice.format} at {repository.commit}")
        progress = Progress(choice.num_bytes, on_progress)
        try:
            hub.fetch(repository, choice, folder, progress)
        except OSError as error:
            raise store_error(store.root, error) from error
        progress.enter("describing")
        dropped = drop_unfitting(folder / choice.model_file)
        files = [file for file in choice.files if local_path(file) not in dropped]
        try:
            description = description_of(folder / choice.model_file)
        except StoreError as error:
            raise StoreError(
                f"{repository.name} cannot be served: {error} `manage.py model rm {name}` removes what was fetched."
            ) from error
        return store.finish(
            name,
            kind=description.kind,
            model_file=choice.model_file,
            source=Source("hub", repository.name, repository.commit, repository.asked_revision),
            description=description,
            hashes={local_path(file): file.sha256 or sha256_of(folder / local_path(file)) for file in files},
        )


def _remote_file(sibling: Any) -> RemoteFile:
    try:
        path_check(sibling.rfilename)
    except ValueError as error:
        raise StoreError(f"The repository is not to be trusted: {error}.") from error
    sha256 = (sibling.lfs.sha256 if sibling.lfs else "") or ""
    if sibling.size is None or not (sha256 or sibling.blob_id):
        raise StoreError(f"The hub says no size or hash of {sibling.rfilename}: use another mirror.")
    return RemoteFile(sibling.rfilename, sibling.size, sha256, sibling.blob_id or "")


def local_path(file: RemoteFile) -> str:
    """Return where a file is stored: GGUF files of subfolders lie beside each other."""
    return file.path.rpartition("/")[2] if file.path.lower().endswith(".gguf") else file.path


def _is_there(place: Path, file: RemoteFile) -> bool:
    return place.is_file() and place.stat().st_size == file.num_bytes


def _check(place: Path, file: RemoteFile) -> None:
    """Compare a fetched file with what the hub says of it; remove it if it differs. Raises StoreError."""
    found, wanted = (sha256_of(place), file.sha256) if file.sha256 else (git_sha1_of(place), file.git_sha1)
    if wanted and found != wanted:
        place.unlink()
        raise StoreError(
            f"{file.path} is not what the repository says: its hash is {found}, not {wanted}. It was removed: pull "
            "again, and if that does not help, another mirror or revision."
        )


def git_sha1_of(place: Path) -> str:
    """Return the name that git gives a file's contents."""
    start = hashlib.sha1(b"blob %d\0" % place.stat().st_size, usedforsecurity=False)
    with place.open("rb") as source:
        return hashlib.file_digest(source, lambda: start).hexdigest()


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _reason_for(name: str, device: str, num_bytes: int, memory_bytes: int) -> str:
    size = f"{num_bytes / 1e9:.2f} GB of weights beside {memory_bytes / 1e9:.0f} GB of memory"
    if name == FOLDER:
        return f"whole weights, as a GPU computes in bfloat16; {size}" if device == "cuda" else f"no GGUF file; {size}"
    if name.removeprefix("UD-") in PREFERRED:
        return f"the first of {', '.join(PREFERRED[:3])}, … that is there and fits; {size}"
    return f"the largest that fits; {size}"
