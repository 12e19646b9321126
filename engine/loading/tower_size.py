"""How much memory the encoder of a model's media takes for the largest input, read before its weights are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from engine.api.errors import ModelLoadError
from engine.gguf_file import GgufFile
from engine.gguf_pair import Projector
from engine.media.options import MOST_CROPS, MOST_TILES
from engine.media.phi_images import DEFAULT_MOST_SQUARES, MOST_SQUARES
from engine.media.qwen_videos import IMAGES_OF_VIDEO, VIDEO_PIXELS
from engine.models.projectors.registry import describe_projector
from engine.models.transformers_backend.media_config import SoundConfig, media_config, sound_config
from engine.tokenizers.folder_files import read_object

ROWS, WIDE_ROWS = 12, 18
"""Numbers of the width that attention has of a patch at once; WIDE_ROWS where it turns halves in float32."""
GATE_ROWS, GATE_PARTS = 6, 3
"""Of the feed-forward: rows of the width, and of its own."""
TEXT_ROWS = 4
"""Rows of the text model's width that the projector has of a vector."""
PHI = "phi4_multimodal"
MASKED = ("idefics3", "smolvlm")
INPUTS = {PHI: 3, "idefics3": 3, "smolvlm": 3, "llava_next": 2, "llava_onevision": 2}
"""How often a call has its pixels, once if it is not said: they are copied, and have a mask."""
WINDOW_S, FRAMES = 30, 2
"""Seconds of a window of sound, and the frames of which a state is made."""
COPIES = 2
"""Of an item's inputs: as they come, and as tensors of the encoder."""


@dataclass(frozen=True, slots=True)
class TowerSize:
    """The sizes of a tower, and of the largest image, video or sound."""

    width: int
    inner: int
    """The width of the feed-forward."""
    text_width: int
    patch_values: int
    """Numbers of the inputs of a patch."""
    num_kept: int
    """Layers whose states are kept until the last one, as the projector reads them."""
    tile_patches: int
    """What the tower sees by itself: a tile, a window of sound, or all of an image whose size is open."""
    most_tiles: int
    """Of one item."""
    tile_tokens: float
    is_cut: bool
    """Tiles of one image may be encoded one after the other."""
    has_mask: bool = False
    """Attention is masked by the square of the patches."""

    def step_bytes(self, max_tokens: int, dtype: torch.dtype) -> int:
        """Return the most that one step of the encoder takes. `max_tokens`: its budget."""
        together = max(1, int(max_tokens / self.tile_tokens))
        num_patches = self.tile_patches * (together if self.is_cut else max(together, self.most_tiles))
        attention = (ROWS if dtype == torch.float32 else WIDE_ROWS) * self.width
        projector = int(TEXT_ROWS * self.text_width * self.tile_tokens / self.tile_patches)
        layer = max(attention, GATE_ROWS * self.width + GATE_PARTS * self.inner, projector)
        numbers = self.patch_values + layer + self.num_kept * self.width
        mask = 2 * self.tile_patches**2 if self.has_mask else 0
        return dtype.itemsize * (num_patches * numbers + mask)

    @property
    def input_bytes(self) -> int:
        """The memory of the inputs of the largest item, which come as float32."""
        return COPIES * 4 * self.most_tiles * self.tile_patches * self.patch_values


def read_tower(path: Path, most_tokens: int) -> TowerSize:
    """Read the sizes of a folder. Raises ModelLoadError.

    `most_tokens`: of an image whose size the model leaves open.
    """
    return _read(path, lambda: _size(media_config(path), _images(path), most_tokens))


def read_pair(projector: Projector, text: Path, most_tokens: int) -> TowerSize:
    """Read the sizes of a projector beside a text model's file, as `read_tower`. Raises ModelLoadError."""
    described = describe_projector(projector, GgufFile.read_metadata(text))
    values, images = described.config, described.image_options
    return _read(projector.path, lambda: _size(AutoConfig.for_model(**values), images, most_tokens))


def read_sounds(path: Path, most_seconds: int) -> TowerSize:
    """Read the sizes of a folder whose model hears, window by window. Raises ModelLoadError."""
    return _read(path, lambda: _sound_size(sound_config(path), most_seconds))


def _sound_size(config: SoundConfig, most_seconds: int) -> TowerSize:
    tower = config.tower
    if tower.max_source_positions < 1:
        raise ValueError(f"max_source_positions must be at least 1, got {tower.max_source_positions}")
    return TowerSize(
        width=tower.d_model,
        inner=tower.encoder_ffn_dim,
        text_width=config.text.hidden_size,
        patch_values=FRAMES * tower.num_mel_bins,
        num_kept=0,
        tile_patches=tower.max_source_positions,
        most_tiles=ceil(most_seconds / WINDOW_S),
        tile_tokens=tower.max_source_positions,
        is_cut=True,
        has_mask=config.kind == "qwen2_audio",
    )


def _read(path: Path, size: Callable[[], TowerSize]) -> TowerSize:
    try:
        return size()
    except ModelLoadError:
        raise
    except Exception as error:  # transformers has as many kinds of errors as it has checks
        raise ModelLoadError(f"{path}: the size of its encoder cannot be read: {error}") from error


def _size(config: Any, images: Mapping[str, Any], most_tokens: int) -> TowerSize:
    vision, text = config.vision_config, config.get_text_config()
    width = getattr(vision, "embed_dim", None) or vision.hidden_size
    inner = getattr(vision, "intermediate_size", None) or int(width * vision.mlp_ratio)
    kind, patch = config.model_type, _side(vision.patch_size)
    merge = _merge(config, vision)
    kept = getattr(config, "vision_feature_layer", getattr(vision, "feature_layer", None))
    sizes: dict[str, Any] = {
        "width": width,
        "inner": inner,
        "text_width": text.hidden_size,
        "patch_values": 3 * patch**2 * getattr(vision, "temporal_patch_size", 1) * INPUTS.get(kind, 1),
        "num_kept": len(kept) if isinstance(kept, list | tuple) else int(kept is not None),
    }
    if kind.startswith("qwen"):
        side = patch * merge
        of_video = VIDEO_PIXELS // (side**2 * vision.temporal_patch_size)
        num_tokens = max(most_tokens, min(of_video, IMAGES_OF_VIDEO * most_tokens))
        return TowerSize(
            **sizes, tile_patches=num_tokens * merge**2, most_tiles=1, tile_tokens=num_tokens, is_cut=False
        )
    if vision.model_type == "pixtral":
        edge = _edge(images.get("size"), vision.image_size)
        num_patches = (ceil(edge / (patch * merge)) * merge) ** 2
        return TowerSize(
            **sizes,
            tile_patches=num_patches,
            most_tiles=1,
            tile_tokens=num_patches / merge**2,
            is_cut=False,
            has_mask=True,
        )
    side = _side(vision.image_size)
    num_patches = (side // patch) ** 2
    return TowerSize(
        **sizes,
        tile_patches=num_patches + 1,
        most_tiles=_tiles(config, images, side, most_tokens),
        tile_tokens=getattr(config, "mm_tokens_per_image", None) or num_patches / merge**2,
        is_cut=kind in ("gemma3", "internvl", *MASKED),
    )


def _merge(config: Any, vision: Any) -> int:
    """Return the side of the square of patches that become one token."""
    ratio = getattr(config, "downsample_ratio", None)
    if ratio:
        return round(1 / ratio)
    if config.model_type == PHI:
        return 2
    named = ((config, "scale_factor"), (config, "spatial_merge_size"), (vision, "spatial_merge_size"))
    return int(next((getattr(part, name) for part, name in named if getattr(part, name, None)), 1))


def _tiles(config: Any, images: Mapping[str, Any], side: int, most_tokens: int) -> int:
    """Return the tiles of the largest image, with a small copy of the whole."""
    if config.model_type == PHI:
        cells = side // _side(config.vision_config.patch_size) // 2
        room = (most_tokens - 1) // (cells * (cells + 1)) - 1
        return 1 + max(1, min(int(images.get(MOST_SQUARES) or DEFAULT_MOST_SQUARES), room))
    if getattr(config, "image_grid_pinpoints", None):
        return 1 + max(height * width for height, width in config.image_grid_pinpoints) // side**2
    if config.model_type in MASKED:
        longest, tile = _edge(images.get("size"), 4 * side), _edge(images.get("max_image_size"), side)
        return 1 + ceil(longest / tile) ** 2
    return {"gemma3": MOST_CROPS, "internvl": MOST_TILES}.get(config.model_type, 0) + 1


def _images(path: Path) -> Mapping[str, Any]:
    """Return what a folder says of its image processor."""
    own = read_object(path / "processor_config.json").get("image_processor")
    return own if isinstance(own, dict) else read_object(path / "preprocessor_config.json")


def _side(size: Any) -> int:
    return int(max(size)) if isinstance(size, list | tuple) else int(size)


def _edge(size: Any, default: int) -> int:
    """Return the longest edge that a processor's size says."""
    return int(size["longest_edge"]) if isinstance(size, Mapping) and size.get("longest_edge") else default
