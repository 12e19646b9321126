"""Models that are on this machine already, and their way into the store: files, folders, the caches of other programs.

    a GGUF file, all parts of a split one    a Hugging Face folder: config.json and *.safetensors
    a Hugging Face cache                     models--<owner>--<name>/snapshots/<commit>/…
    an Ollama folder                         manifests/<registry>/<owner>/<name>/<tag>, blobs/sha256-…

Links inside these lead to files inside these: others are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Any

from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore, sha256_of
from chat.model_store.inspection import description_of
from chat.model_store.manifest import PART, Manifest, Source
from chat.model_store.projectors import drop_unfitting, projector_beside
from engine.gguf_pair import is_beside

CACHE_PREFIX = "models--"
OLLAMA_MODEL = "application/vnd.ollama.image.model"
OLLAMA_PROJECTOR = "application/vnd.ollama.image.projector"
OLLAMA_FILE = "model.gguf"
OLLAMA_FILES = {OLLAMA_MODEL: OLLAMA_FILE, OLLAMA_PROJECTOR: "mmproj-model.gguf"}
"""Types of layers, and the names that their files get."""
OLLAMA_REGISTRY, OLLAMA_OWNER = "registry.ollama.ai", "library"
MAX_JSON_BYTES = 1 << 20
SHA256 = re.compile(r"[0-9a-f]{64}")
FOLDER_FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer*",
    "tekken.json",
    "spiece.model",
    "tiktoken.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "chat_template*",
    "modules.json",
    "*sentence_*.json",
    "preprocessor_config.json",
    "processor_config.json",
    "README.md",
    "LICENSE*",
)
"""Of a Hugging Face folder. Weights of other formats, and code, stay behind."""
MODULE_FILES = (
    "[0-9]_*/config.json",
    "[0-9]_*/model.safetensors",
    "vision-lora/adapter_config.json",
    "vision-lora/adapter_model.safetensors",
)
"""Of the modules of sentence-transformers and the adapter by which Phi-4-multimodal sees, each in a folder of its own
within that."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that can be imported. `files`: by the path that they get; `model_file`: as in a manifest."""

    name: str
    files: tuple[tuple[str, Path], ...]
    model_file: str
    source: Source
    hashes: dict[str, str] = field(default_factory=dict)
    """SHA-256 that other programs have noted, by path."""
    note: str = ""
    """Why no projector is taken, if some lie beside the model."""


def models_at(path: Path) -> list[LocalModel]:
    """Return the models at a path, by name. Raises StoreError if there is none."""
    try:
        found = list(_models_at(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a text in it is none"
        raise StoreError(f"{path} cannot be read: {reason}.") from error
    if not found:
        raise StoreError(
            f"There is no model at {path}. It may be a GGUF file, a folder with config.json and *.safetensors, a cache "
            "of Hugging Face (…/hub) or a folder of Ollama (…/models)."
        )
    return sorted(found, key=lambda model: model.name)


def without_doubles(names: list[str]) -> list[str]:
    """Return the safetensors files to take: those of Mistral's own layout only if there are no others."""
    others = [name for name in names if name.endswith(".safetensors") and not name.startswith("consolidated")]
    return [name for name in names if not (others and name.startswith("consolidated"))]


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
        yield from _folder(path, path.name, Source("folder", str(path)), path)


def _gguf(path: Path, source: Source) -> LocalModel:
    part = PART.search(path.stem)
    projector, note = projector_beside(path)
    beside = () if projector is None else ((projector.name, projector),)
    if not part:
        return LocalModel(path.stem, ((path.name, path), *beside), path.name, source, note=note)
    beginning = path.stem[: part.start()]
    files = sorted(path.parent.glob(f"{escape(beginning)}-?????-of-{part[1]}{escape(path.suffix)}"))
    if len(files) != int(part[1]):
        raise StoreError(
            f"{path.parent} holds {len(files)} of the {int(part[1])} parts of {beginning}: add the others."
        )
    named = ((file.name, file) for file in files)
    return LocalModel(beginning, (*named, *beside), files[0].name, source, note=note)


def _folder(path: Path, name: str, source: Source, root: Path) -> Iterator[LocalModel]:
    """Yield the model of a Hugging Face folder, or its GGUF files, one for each. Links stay below `root`."""
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        names = dict.fromkeys(
            file.name for pattern in FOLDER_FILES for file in sorted(path.glob(pattern)) if file.is_file()
        )
        modules = (file for pattern in MODULE_FILES for file in sorted(path.glob(pattern)) if file.is_file())
        inner = [file.relative_to(path).as_posix() for file in modules]
        files = tuple((one, path / one) for one in (*without_doubles(list(names)), *inner))
        yield LocalModel(name, files, "", source, _noted(files, root))
        return
    seen = set()
    for file in sorted(path.glob("*.gguf")):
        if not is_beside(file.name) and (model := _gguf(file, source)).name not in seen:
            seen.add(model.name)
            yield replace(model, hashes=_noted(model.files, root))


def _noted(files: tuple[tuple[str, Path], ...], root: Path) -> dict[str, str]:
    """Return the hashes after which the blobs of a cache are named. Refuse links that leave `root`."""
    found = {}
    for path, origin in files:
        real = origin.resolve()
        if not real.is_relative_to(root.resolve()):
            raise StoreError(f"{origin} is a link to {real}, outside {root}: put the file itself there.")
        if real != origin and SHA256.fullmatch(real.name):
            found[path] = real.name
    return found


def _cached(cache: Path) -> Iterator[LocalModel]:
    """Yield the models of a repository in a Hugging Face cache, at the commit of its `main`, else the newest."""
    repository = cache.name.removeprefix(CACHE_PREFIX).replace("--", "/")
    snapshots = sorted((cache / "snapshots").iterdir(), key=lambda folder: folder.stat().st_mtime)
    if not snapshots:
        return
    main = cache / "refs" / "main"
    commit = main.read_text().strip() if main.is_file() else snapshots[-1].name
    folder = cache / "snapshots" / commit if commit in {one.name for one in snapshots} else snapshots[-1]
    yield from _folder(folder, repository.rpartition("/")[2], Source("hub", repository, folder.name, "main"), cache)


def _ollama(root: Path) -> Iterator[LocalModel]:
    for manifest in sorted((root / "manifests").glob("*/*/*/*")):
        registry, owner, model, tag = manifest.relative_to(root / "manifests").parts
        is_usual = (registry, owner) == (OLLAMA_REGISTRY, OLLAMA_OWNER)
        name = f"{model}:{tag}" if is_usual else f"{owner}/{model}:{tag}"
        blobs = dict[str, tuple[Path, str]]()
        for layer in _layers(manifest):
            file = OLLAMA_FILES.get(str(layer.get("mediaType"))) if isinstance(layer, dict) else None
            if file is not None:
                digest = str(layer.get("digest", "")).removeprefix("sha256:")
                blob = root / "blobs" / f"sha256-{digest}"
                if SHA256.fullmatch(digest) and blob.is_file():
                    blobs[file] = (blob, digest)
        if OLLAMA_FILE in blobs:
            files = tuple((file, blob) for file, (blob, _) in blobs.items())
            hashes = {file: digest for file, (_, digest) in blobs.items()}
            yield LocalModel(name, files, OLLAMA_FILE, Source("ollama", name, hashes[OLLAMA_FILE], tag), hashes)


def _layers(manifest: Path) -> list[Any]:
    if not manifest.is_file() or manifest.stat().st_size > MAX_JSON_BYTES:
        return []
    try:
        layers = json.loads(manifest.read_bytes()).get("layers", [])
    except (ValueError, AttributeError):
        return []
    return layers if isinstance(layers, list) else []


def import_note(model: LocalModel, made: Manifest) -> str:
    """Return what an import has left behind of what makes the model see, in a sentence; empty if nothing."""
    dropped = {path for path, _ in model.files} - {file.path for file in made.files}
    if dropped:
        return f"{made.name} reads text alone: {', '.join(sorted(dropped))} does not fit it and was left out."
    if model.note:
        return f"{made.name} reads text alone, as no projector beside it could be taken: {model.note}."
    return ""


def model_import(store: ModelStore, model: LocalModel, name: str = "") -> Manifest:
    """Bring a model into the store, under its own name unless another is given. Raises StoreError."""
    name = name or model.name
    with store.locked(name):
        folder = store.begin(name)
        try:
            store.take(model.files, folder)
            hashes = {path: sha256_of(folder / path) for path, _ in model.files}
            for path, noted in model.hashes.items():
                if hashes[path] != noted:
                    raise StoreError(f"{path} is damaged: its hash is {hashes[path]}, not {noted}. Fetch it again.")
            for path in drop_unfitting(folder / model.model_file):
                del hashes[path]
            description = description_of(folder / model.model_file)
            return store.finish(
                name,
                kind=description.kind,
                model_file=model.model_file,
                source=model.source,
                description=description,
                hashes=hashes,
            )
        finally:
            store.discard(name)
