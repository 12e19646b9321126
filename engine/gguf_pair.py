"""A text model's GGUF file and the projector that goes with it: an encoder of images in a GGUF file of its own.

llama.cpp's converters write both (`mmproj` in the name of the second, `general.architecture` clip in it). No torch:
workers read what a model is for. Keys: https://github.com/ggml-org/llama.cpp, tools/mtmd.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.api.errors import ModelLoadError
from engine.gguf_file import SPLIT_NAME, GgufFile

logger = logging.getLogger(__name__)

MARK, NONE = "mmproj", "none"
"""What the names of projectors have, and the choice of none of them."""
SETTING = "LIGHTCONE_MMPROJ"
IMATRIX = "imatrix"
"""In the names of importance matrices, and of models that were quantized with one."""
QUANTIZED = re.compile(r"(?<![a-z0-9])(?:[it]?q\d|mxfp\d|nvfp\d)")
"""What the name of a quantized model has, in small letters. An importance matrix is made of whole weights."""
PROJECTOR_ARCHITECTURE = "clip"
SHOWN = 80
"""Characters of a value of the file in an error."""


class SeveralProjectors(ModelLoadError):
    """Raised if several projectors fit a model, and none is chosen. `names`: of their files."""

    def __init__(self, path: Path, names: list[str]) -> None:
        super().__init__(
            f"{path}: has {len(names)} projectors beside it that fit ({', '.join(names)}): name one of them in "
            f"{SETTING}, or call the one for this model {MARK}-{path.stem}.gguf"
        )
        self.names = names


@dataclass(frozen=True, slots=True)
class ProjectorKind:
    """What a `clip.projector_type` goes with."""

    models: str
    """What people call the models that have it."""
    width: tuple[str, int]
    """The tensor, and its axis, that is as wide as the text model."""
    texts: tuple[str, ...] = ()
    """`general.architecture` of its text models; empty: any but those of PLACED."""
    takes_videos: bool = False


PLACED = ("qwen2vl", "qwen3vl")
"""Text models that turn vectors by the row and column of an image, which projectors for any text model do not say."""
KINDS = {
    "mlp": ProjectorKind("LLaVA 1.5 and 1.6", ("mm.2.weight", 0)),
    "idefics3": ProjectorKind("SmolVLM and Idefics 3", ("mm.model.fc.weight", 0), ("llama",)),
    "gemma3": ProjectorKind("Gemma 3", ("mm.input_projection.weight", 1), ("gemma3",)),
    "qwen2vl_merger": ProjectorKind("Qwen2-VL", ("mm.2.weight", 0), ("qwen2vl",), takes_videos=True),
    "qwen2.5vl_merger": ProjectorKind("Qwen2.5-VL", ("mm.2.weight", 0), ("qwen2vl",), takes_videos=True),
    "qwen3vl_merger": ProjectorKind("Qwen3-VL", ("mm.2.weight", 0), ("qwen3vl",), takes_videos=True),
    "internvl": ProjectorKind("InternVL", ("mm.model.mlp.3.weight", 0), ("llama", "qwen2", "qwen3")),
    "pixtral": ProjectorKind("Pixtral and Mistral Small 3", ("mm.2.weight", 0), ("llama", "mistral3")),
}
"""By `clip.projector_type`."""


@dataclass(frozen=True, slots=True)
class Projector:
    """The head of a projector's file: its metadata, and the shapes of its tensors, outermost first."""

    path: Path
    type: str
    metadata: Mapping[str, object]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def read(cls, path: Path) -> Projector:
        """Read the head of a file. Raises ModelLoadError for one that is no projector of images, or of a kind that is
        not served.
        """
        metadata, shapes = GgufFile.read_shapes(path)
        architecture = str(metadata.get("general.architecture"))[:SHOWN]
        if architecture != PROJECTOR_ARCHITECTURE:
            raise ModelLoadError(
                f"{path}: general.architecture must be {PROJECTOR_ARCHITECTURE!r} in a projector, got "
                f"{architecture!r}; {_remedy(path)}"
            )
        if metadata.get("clip.has_vision_encoder") is not True:
            raise ModelLoadError(f"{path}: has no encoder of images (clip.has_vision_encoder); {_remedy(path)}")
        kind = metadata.get("clip.projector_type") or metadata.get("clip.vision.projector_type") or "mlp"
        if not isinstance(kind, str) or kind not in KINDS:
            known = ", ".join(f"{name} ({one.models})" for name, one in KINDS.items())
            raise ModelLoadError(
                f"{path}: clip.projector_type {str(kind)[:SHOWN]!r} cannot be served; {known} are; {_remedy(path)}"
            )
        return cls(path, kind, metadata, shapes)

    @property
    def kind(self) -> ProjectorKind:
        return KINDS[self.type]

    @property
    def width(self) -> int:
        """The width of its vectors. Raises ModelLoadError if the tensor is missing that shows it."""
        name, axis = self.kind.width
        if name not in self.shapes:
            raise ModelLoadError(f"{self.path}: tensor {name!r} is missing")
        if len(self.shapes[name]) != 2:
            raise ModelLoadError(f"{self.path}: tensor {name!r} must have two dimensions, got {self.shapes[name]}")
        return self.shapes[name][axis]

    def check(self, text: Path, metadata: Mapping[str, object]) -> None:
        """Raise ModelLoadError unless it goes with a text model. `metadata`: of its file `text`."""
        architecture = str(metadata.get("general.architecture"))
        width, texts = metadata.get(f"{architecture}.embedding_length"), self.kind.texts
        if architecture not in texts if texts else architecture in PLACED:
            served = " or ".join(texts) or f"of any but {' and '.join(PLACED)}"
            raise ModelLoadError(
                f"{self.path}: clip.projector_type {self.type!r} goes with text models of the architecture "
                f"{served}, but {text.name} is {architecture[:SHOWN]!r}; {_remedy(self.path)}"
            )
        if self.width != width:
            raise ModelLoadError(
                f"{self.path}: makes vectors of {self.width} numbers ({self.kind.width[0]}), but {text.name} has an "
                f"embedding_length of {str(width)[:SHOWN]}: they are of two models; {_remedy(self.path)}"
            )


def _remedy(path: Path) -> str:
    return f"put the model's own projector in its place, or set {SETTING}={NONE} to serve text without {path.name}"


def text_file(path: Path) -> Path:
    """Return the text model's file in a folder of GGUF files; any other path as it is.

    Raises ModelLoadError if a folder holds several.
    """
    if not path.is_dir() or (path / "config.json").is_file():
        return path
    found = _text_files(path)
    if len(found) > 1:
        names = ", ".join(file.name for file in found[:5])
        raise ModelLoadError(f"{path}: holds {len(found)} GGUF models: name the file of one, such as {names}")
    return found[0] if found else path


def _text_files(folder: Path) -> list[Path]:
    """Return the GGUF files of a folder that are text models, of split ones the first part."""
    files = sorted(file for file in folder.glob("*") if file.suffix.lower() == ".gguf" and not is_beside(file.name))
    parts = {file: SPLIT_NAME.fullmatch(file.name) for file in files}
    return [file for file, part in parts.items() if part is None or int(part[2]) == 1]


def is_beside(name: str) -> bool:
    """Return True for the name of a GGUF file that is no model of text: a projector or an importance matrix."""
    lower = name.lower()
    is_marked = lower.startswith(IMATRIX) or lower.removesuffix(".gguf").endswith(f".{IMATRIX}")
    is_matrix = is_marked or (IMATRIX in lower and not QUANTIZED.search(lower))
    return MARK in lower or is_matrix


def find_projector(path: Path, chosen: str = "") -> Projector | None:
    """Return the projector beside the GGUF file of a text model, or None. `chosen`: a file's name, or "none".

    Raises ModelLoadError if one that belongs to the model cannot be used, and SeveralProjectors if several fit.

    1. That of the chosen name, if there is one beside this model, or else the one whose name begins with the model's.
    2. The only one that fits.
    3. A file that does not fit belongs to this model if no other model lies beside it: it is refused.
    """
    if chosen == NONE or path.is_dir() or is_beside(path.name):
        return None
    candidates = sorted(
        file for file in path.parent.glob("*") if file.suffix.lower() == ".gguf" and MARK in file.name.lower()
    )
    if not candidates:
        return None
    metadata = _numbers_of(path)
    if chosen and chosen not in {file.name for file in candidates}:
        logger.info("%s: has no %s beside it, which %s names", path, chosen, SETTING)
    own = [file for file in candidates if file.name == chosen] or _named_after(path, candidates)
    if len(own) == 1:
        return _checked(own[0], path, metadata)
    fitting, problems = list[Projector](), list[ModelLoadError]()
    for file in candidates:
        try:
            fitting.append(_checked(file, path, metadata))
        except ModelLoadError as error:
            problems.append(error)
    if len(fitting) > 1:
        raise SeveralProjectors(path, [projector.path.name for projector in fitting])
    if fitting:
        return fitting[0]
    if len(_text_files(path.parent)) == 1:
        raise problems[0]
    logger.info("%s: is served for text alone, as no projector beside it fits: %s", path, problems[0].message)
    return None


def _numbers_of(path: Path) -> Mapping[str, object]:
    """Return what stands before the vocabulary of a file, which is long and mostly comes last; else all."""
    metadata = GgufFile.read_metadata(path, before="tokenizer.")
    has_width = any(name.endswith(".embedding_length") for name in metadata)
    return metadata if has_width else GgufFile.read_metadata(path)


def _checked(file: Path, text: Path, metadata: Mapping[str, object]) -> Projector:
    projector = Projector.read(file)
    projector.check(text, metadata)
    return projector


def _named_after(path: Path, candidates: list[Path]) -> list[Path]:
    """Return the projectors whose names, without the mark, begin with that of the text model's file."""
    part = SPLIT_NAME.fullmatch(path.name)
    stem = _letters(part[1] if part else path.stem)
    return [file for file in candidates if stem and _letters(file.stem).replace(MARK, "").startswith(stem)]


def _letters(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())
