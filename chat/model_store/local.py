"""Models that are on this machine already, and their way into the store: files, folders, the caches of other programs.

a GGUF file, all parts of a split one    a Hugging Face folder: config.json and *.safetensors
a Hugging Face cache                     models--<owner>--<name>/snapshots/<commit>/…
an Ollama folder                         manifests/<registry>/<owner>/<name>/<tag>, blobs/sha256-…
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore, sha256_of
from chat.model_store.inspection import description_of
from chat.model_store.manifest import PART, Manifest, Source, name_check

CHAT = "chat"
CACHE_PREFIX = "models--"
OLLAMA_MODEL = "application/vnd.ollama.image.model"
OLLAMA_REGISTRY, OLLAMA_OWNER = "registry.ollama.ai", "library"
MAX_JSON_BYTES = 1 << 20
FOLDER_FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer*",
    "tekken.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "chat_template*",
    "preprocessor_config.json",
    "processor_config.json",
    "README.md",
    "LICENSE*",
)
"""Of a Hugging Face folder. Weights of other formats, and code, stay behind."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that can be imported. `files`: by the path that they get; `model_file`: as in a manifest."""

    name: str
    files: tuple[tuple[str, Path], ...]
    model_file: str
    source: Source


def models_at(path: Path) -> list[LocalModel]:
    """Return the models at a path, by name. Raises StoreError if there is none."""
    try:
        found = list(_models_at(path))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    if not found:
        raise StoreError(
            f"There is no model at {path}. It may be a GGUF file, a folder with config.json and *.safetensors, a cache "
            "of Hugging Face (…/hub) or a folder of Ollama (…/models)."
        )
    return sorted(found, key=lambda model: model.name)


def _models_at(path: Path) -> Iterator[LocalModel]:
    if path.is_file():
        if path.suffix.lower() == ".gguf":
            yield _gguf(path, Source("file", str(path)))
    elif (path / "manifests").is_dir() and (path / "blobs").is_dir():
        yield from _ollama(path)
    elif path.name.startswith(CACHE_PREFIX) and (path / "snapshots").is_dir():
        yield from _cached(path)
    elif caches := sorted(path.glob(f"{CACHE_PREFIX}*/snapshots")):
        for snapshots in caches:
            yield from _cached(snapshots.parent)
    else:
        yield from _folder(path, path.name, Source("folder", str(path)))


def _gguf(path: Path, source: Source, name: str = "") -> LocalModel:
    part = PART.search(path.stem)
    files = sorted(path.parent.glob(f"{path.stem[: part.start()]}-*-of-{part[1]}.gguf")) if part else [path]
    return LocalModel(
        name or PART.sub("", path.stem), tuple((file.name, file) for file in files), files[0].name, source
    )


def _folder(path: Path, name: str, source: Source) -> Iterator[LocalModel]:
    """Yield the model of a Hugging Face folder, or its GGUF files, one for each."""
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        files = {file.name: file for pattern in FOLDER_FILES for file in sorted(path.glob(pattern)) if file.is_file()}
        yield LocalModel(name, tuple(files.items()), "", source)
        return
    seen = set()
    for file in sorted(path.glob("*.gguf")):
        model = _gguf(file, source)
        if model.name not in seen and "mmproj" not in file.name:
            seen.add(model.name)
            yield model


def _cached(cache: Path) -> Iterator[LocalModel]:
    """Yield the models of a repository in a Hugging Face cache, at the commit of its `main`, else the newest."""
    repository = cache.name.removeprefix(CACHE_PREFIX).replace("--", "/")
    snapshots = sorted((cache / "snapshots").iterdir(), key=lambda folder: folder.stat().st_mtime)
    if not snapshots:
        return
    main = cache / "refs" / "main"
    commit = main.read_text().strip() if main.is_file() else snapshots[-1].name
    folder = cache / "snapshots" / commit if commit in {one.name for one in snapshots} else snapshots[-1]
    yield from _folder(folder, repository.rpartition("/")[2], Source("hub", repository, folder.name, "main"))


def _ollama(root: Path) -> Iterator[LocalModel]:
    for manifest in sorted((root / "manifests").glob("*/*/*/*")):
        registry, owner, model, tag = manifest.relative_to(root / "manifests").parts
        is_usual = (registry, owner) == (OLLAMA_REGISTRY, OLLAMA_OWNER)
        name = f"{model}:{tag}" if is_usual else f"{owner}/{model}:{tag}"
        for layer in _layers(manifest):
            if isinstance(layer, dict) and layer.get("mediaType") == OLLAMA_MODEL:
                digest = str(layer.get("digest", ""))
                blob = root / "blobs" / digest.replace(":", "-")
                if "/" not in digest and blob.is_file():
                    yield LocalModel(name, (("model.gguf", blob),), "model.gguf", Source("ollama", name, digest, tag))


def _layers(manifest: Path) -> list[Any]:
    if not manifest.is_file() or manifest.stat().st_size > MAX_JSON_BYTES:
        return []
    try:
        layers = json.loads(manifest.read_bytes()).get("layers", [])
    except (ValueError, AttributeError):
        return []
    return layers if isinstance(layers, list) else []


def model_import(store: ModelStore, model: LocalModel, name: str = "") -> Manifest:
    """Bring a model into the store, under its own name unless another is given. Raises StoreError."""
    name = name or model.name
    name_check(name)
    with store.locked(name):
        if store.has(name):
            raise StoreError(f"There is a model {name!r} already: remove it first, or choose another name (--name).")
        folder = store.partial(name)
        try:
            store.take(model.files, folder)
            description = description_of(folder / model.model_file)
            return store.finish(
                name,
                kind=CHAT,
                model_file=model.model_file,
                source=model.source,
                description=description,
                hashes={path: sha256_of(folder / path) for path, _ in model.files},
            )
        finally:
            store.discard(name)
