"""What says how images become inputs of a model: the files of its folder, or a text model and its projector in GGUF."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import transformers
from transformers import AutoConfig, AutoImageProcessor, AutoProcessor, AutoTokenizer, PreTrainedTokenizerFast

from engine.api.errors import ModelLoadError
from engine.gguf_file import GgufFile
from engine.gguf_pair import Projector, find_projector, text_file
from engine.models.projectors.registry import describe_projector
from engine.models.transformers_backend.media_config import media_config
from engine.tokenizers.folder_files import read_object
from engine.tokenizers.tokenizer import Tokenizer


class ModelFiles(Protocol):
    """The parts of processors of transformers."""

    config: Any
    """Of the model, as transformers has it."""

    @property
    def images(self) -> Any: ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def processor(self) -> Any:
        """The processor of transformers that writes the text of images itself."""
        ...

    @property
    def videos(self) -> dict[str, Any]:
        """What the files say of videos."""
        ...

    @property
    def placeholder(self) -> str:
        """What templates write for an image; "": what the processor takes for one."""
        ...


class FolderFiles:
    """The files of a Hugging Face folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.config = media_config(path)

    @property
    def images(self) -> Any:
        return AutoImageProcessor.from_pretrained(self._path)

    @property
    def tokenizer(self) -> Any:
        return AutoTokenizer.from_pretrained(self._path)

    @property
    def processor(self) -> Any:
        return AutoProcessor.from_pretrained(self._path)

    @property
    def videos(self) -> dict[str, Any]:
        own = read_object(self._path / "processor_config.json").get("video_processor")
        return own if isinstance(own, dict) else read_object(self._path / "video_preprocessor_config.json")

    @property
    def placeholder(self) -> str:
        return ""


class PairFiles:
    """A text model's GGUF file and its projector."""

    def __init__(self, text: Path, projector: Projector) -> None:
        """Raises ModelLoadError for a vocabulary without the tokens that stand around images."""
        metadata = GgufFile.read_metadata(text)
        self._described = describe_projector(projector, metadata)
        self.config = AutoConfig.for_model(**self._described.config)
        self._tokenizer = Tokenizer.from_metadata(metadata)
        needed = (*self._described.markers, *([self._described.image_token] * self._described.has_own_token))
        missing = [token for token in needed if not self._has(token)]
        unknown, wanted = self._tokenizer.special_tokens.get("unk_token", ""), self._described.image_token
        self._token = wanted if self._has(wanted) else unknown
        if missing or not self._token:
            missing = [*missing, wanted]
            raise ModelLoadError(
                f"{text}: its vocabulary has no {missing[0]!r} among the control tokens, which stands for images of a "
                f"model with the projector {projector.path.name}; take a file that was converted together with it"
            )

    def _has(self, token: str) -> bool:
        return token in self._tokenizer.added_texts

    @property
    def images(self) -> Any:
        kind = getattr(transformers, self._described.image_processor)
        return kind(**self._described.image_options)

    @property
    def tokenizer(self) -> Any:
        names = {"image_token": self._token, **self._described.marks}
        return PreTrainedTokenizerFast(tokenizer_object=self._tokenizer.backend, extra_special_tokens=names)

    @property
    def processor(self) -> Any:
        images, tokenizer, vision = self.images, self.tokenizer, self.config.vision_config
        kind = self.config.model_type
        if kind == "gemma3":
            length = self.config.mm_tokens_per_image
            return transformers.Gemma3Processor(images, tokenizer, image_seq_length=length)
        if kind == "idefics3":
            side = vision.image_size // vision.patch_size // self.config.scale_factor
            return transformers.Idefics3Processor(images, tokenizer, image_seq_len=side**2)
        family = {"llava": transformers.LlavaProcessor, "llava_next": transformers.LlavaNextProcessor}[kind]
        return family(
            images,
            tokenizer,
            patch_size=vision.patch_size,
            vision_feature_select_strategy=self.config.vision_feature_select_strategy,
            num_additional_image_tokens=1,
        )

    @property
    def videos(self) -> dict[str, Any]:
        return {}

    @property
    def placeholder(self) -> str:
        return self._described.placeholder


def open_files(path: Path, projector: str) -> ModelFiles:
    """Open what says how images become inputs. `projector`: the choice of `EngineConfig`. Raises ModelLoadError."""
    path = text_file(path)
    found = find_projector(path, projector)
    return FolderFiles(path) if found is None else PairFiles(path, found)
