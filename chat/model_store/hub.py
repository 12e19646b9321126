"""Models of the Hugging Face hub: which files of a repository to take on this machine, and their way into the store.

Transfers are huggingface_hub's `http_get`: its `hf_hub_download` begins anew when a process has died.
`HF_ENDPOINT` names a mirror, as for all programs that use huggingface_hub; `LIGHTCONE_HUB_TOKEN` is the token.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers
from tqdm import tqdm

from chat.model_store.errors import StoreError
from chat.model_store.folder import BLOCK_BYTES, ModelStore, room_check, sha256_of
from chat.model_store.inspection import description_of
from chat.model_store.local import CHAT, FOLDER_FILES
from chat.model_store.manifest import PART, Manifest, Source, name_check, path_check

MAIN = "main"
PARTS = ".parts"
"""A folder of files that are not whole yet."""
FOLDER = "safetensors"
QUANTIZATION = re.compile(r"(?:^|[.-])((?:UD-)?(?:I?Q\d|TQ\d|MXFP4|NVFP4|BF16|F16|F32)[A-Za-z0-9_]*)$", re.IGNORECASE)
"""How the name of a GGUF file ends, before `.gguf` and the number of a part."""
PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_K_XL", "Q4_0", "IQ4_XS", "IQ4_NL", "Q4_1", "Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0")
"""Formats for a CPU, best first: four bits read fewest bytes a token at little loss."""
NVIDIA_SMI_S = 10
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
        """Return the files of each format that can be served, by its name."""
        found: dict[str, list[RemoteFile]] = defaultdict(list)
        for file in self.files:
            stem = file.path.removesuffix(".gguf")
            if stem != file.path and "mmproj" not in file.path.lower():
                label = QUANTIZATION.search(PART.sub("", stem.rpartition("/")[2]))
                found[label[1].upper() if label else "GGUF"].append(file)
        top = [file for file in self.files if "/" not in file.path]
        whole = [file for file in top if any(fnmatch(file.path, pattern) for pattern in FOLDER_FILES)]
        if any(file.path == "config.json" for file in whole) and any(
            fnmatch(file.path, "*.safetensors") for file in whole
        ):
            parts = any(fnmatch(file.path, "model-*.safetensors") for file in whole)
            found[FOLDER] = [file for file in whole if not (parts and file.path.startswith("consolidated"))]
        return {name: tuple(files) for name, files in found.items()}


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
        return "" if self.format == FOLDER else min(file.path for file in self.files).rpartition("/")[2]


@dataclass
class Progress:
    """How far a pull is. `on_progress` is called after each change."""

    num_bytes: int
    on_progress: Callable[[Progress], None] = lambda progress: None
    done: int = 0
    phase: str = "pulling"
    started_at: float = field(default_factory=time.monotonic)
    done_before: int = 0
    """Bytes that an earlier try had fetched."""

    def advance(self, count: int) -> None:
        self.done += count
        self.on_progress(self)

    @property
    def rate(self) -> float:
        """Bytes a second of this try."""
        return (self.done - self.done_before) / max(time.monotonic() - self.started_at, 1e-3)

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
        except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
            raise StoreError(self._offline(error)) from error
        files = tuple(_remote_file(sibling) for sibling in info.siblings or [])
        licence = str(info.card_data.get("license") or "") if info.card_data else ""
        return Repository(name, info.sha or "", revision, licence, files)

    def fetch(self, repository: Repository, choice: Choice, folder: Path, progress: Progress) -> None:
        """Bring the chosen files into a folder, and check them. What is there already is kept. Raises StoreError."""
        missing = [file for file in choice.files if not _is_there(folder / _local_path(file), file)]
        progress.done = progress.done_before = choice.num_bytes - sum(file.num_bytes for file in missing)
        room_check(folder, sum(file.num_bytes for file in missing) - _unfinished_bytes(folder))
        for file in missing:
            self._fetch_one(repository, file, folder, progress)
        progress.phase = "checking"
        for file in choice.files:
            _check(folder / _local_path(file), file)
        shutil.rmtree(folder / PARTS, ignore_errors=True)

    def _fetch_one(self, repository: Repository, file: RemoteFile, folder: Path, progress: Progress) -> None:
        """Fetch a file, from where an earlier try was left."""

        class Bar(tqdm):
            """Tells the progress what is fetched, and shows nothing."""

            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options | {"disable": False, "file": _Nowhere()})

            def update(self, n: float | None = 1) -> bool | None:
                progress.advance(int(n or 0))
                return super().update(n)

        part = folder / PARTS / quote(file.path, safe="")
        part.parent.mkdir(exist_ok=True)
        url = hf_hub_url(repository.name, file.path, revision=repository.commit, endpoint=self._api.endpoint)
        try:
            found = get_hf_file_metadata(url, token=self._token, endpoint=self._api.endpoint)
            headers = build_hf_headers(token=self._token)
            if urlsplit(found.location).netloc != urlsplit(url).netloc:
                headers.pop("authorization", None)  # another host needs no token of the hub
            with part.open("ab") as target:
                progress.advance(target.tell())
                progress.done_before += target.tell()
                http_get(
                    found.location,
                    target,
                    resume_size=target.tell(),
                    headers=headers,
                    expected_size=file.num_bytes,
                    tqdm_class=Bar,
                )
        except GatedRepoError as error:
            raise StoreError(self._gated(repository.name)) from error
        except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
            raise StoreError(
                f"{file.path} could not be fetched: {_reason(error)}. What is there is kept: pull again to go on."
            ) from error
        place = folder / _local_path(file)
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


class _Nowhere:
    """A stream that drops what is written."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Have nothing to write."""


def choose(repository: Repository, format: str, device: str, memory_bytes: int) -> Choice:
    """Choose the files for this machine, or those of a format that is asked for. Raises StoreError."""
    formats = repository.formats()
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
    known = [name for name in order if name in formats]
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
    name_check(name)
    with store.locked(name):
        if store.has(name):
            raise StoreError(f"There is a model {name!r} already: remove it first, or choose another name (--name).")
        folder = store.partial(name)
        _forget_others(folder, repository, choice)
        hub.fetch(repository, choice, folder, Progress(choice.num_bytes, on_progress))
        try:
            description = description_of(folder / choice.model_file)
        except StoreError as error:
            raise StoreError(
                f"{repository.name} cannot be served: {error} `manage.py model rm {name}` removes what was fetched."
            ) from error
        return store.finish(
            name,
            kind=CHAT,
            model_file=choice.model_file,
            source=Source("hub", repository.name, repository.commit, repository.asked_revision),
            description=description,
            hashes={_local_path(file): file.sha256 or sha256_of(folder / _local_path(file)) for file in choice.files},
        )


def memory_of(device: str) -> int:
    """Return the bytes of memory of this machine, or of its first GPU."""
    if device == "cuda":
        command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=True)
            return int(answer.stdout.split()[0]) << 20
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            raise StoreError(
                "nvidia-smi does not say how much memory the GPU has: name the format, as OWNER/NAME:FORMAT."
            ) from None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _remote_file(sibling: Any) -> RemoteFile:
    try:
        path_check(sibling.rfilename)
    except ValueError as error:
        raise StoreError(f"The repository is not to be trusted: {error}.") from error
    lfs = sibling.lfs
    return RemoteFile(
        sibling.rfilename, int(sibling.size or 0), (lfs.sha256 if lfs else "") or "", sibling.blob_id or ""
    )


def _local_path(file: RemoteFile) -> str:
    """Return where a file is stored: GGUF files of subfolders lie beside each other."""
    return file.path.rpartition("/")[2] if file.path.endswith(".gguf") else file.path


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
    digest = hashlib.sha1(b"blob %d\0" % place.stat().st_size, usedforsecurity=False)
    with place.open("rb") as source:
        while block := source.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _forget_others(folder: Path, repository: Repository, choice: Choice) -> None:
    """Remove files of an earlier, other pull of this name from the partial folder."""
    stamp, text = folder.parent / "pull", f"{repository.name} {repository.commit} {choice.format}\n"
    if not stamp.is_file() or stamp.read_text() != text:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        stamp.write_text(text)


def _unfinished_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / PARTS).glob("*"))


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _reason_for(name: str, device: str, num_bytes: int, memory_bytes: int) -> str:
    size = f"{num_bytes / 1e9:.2f} GB of weights beside {memory_bytes / 1e9:.0f} GB of memory"
    if name == FOLDER:
        return f"whole weights, as a GPU computes in bfloat16; {size}" if device == "cuda" else f"no GGUF file; {size}"
    if name in PREFERRED:
        return f"the first of {', '.join(PREFERRED[:3])}, … that is there and fits; {size}"
    return f"the largest that fits; {size}"
