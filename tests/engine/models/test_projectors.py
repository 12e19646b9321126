"""What the metadata of a projector's file may say: the rest is refused by file, field and limit before it is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import ModelLoadError
from engine.gguf_pair import Projector
from engine.models.projectors.registry import describe_projector

FILE = Path("/models/mmproj-F16.gguf")
WIDTH = 32
METADATA = {
    "clip.vision.embedding_length": 16,
    "clip.vision.block_count": 1,
    "clip.vision.attention.head_count": 2,
    "clip.vision.attention.layer_norm_epsilon": 1e-6,
    "clip.vision.image_size": 32,
    "clip.vision.patch_size": 8,
    "clip.vision.image_mean": [0.5, 0.5, 0.5],
    "clip.vision.image_std": [0.5, 0.5, 0.5],
    "clip.use_gelu": True,
}
SHAPES = {
    "v.blk.0.ffn_up.weight": (32, 16),
    "v.blk.0.ffn_down.weight": (16, 32),
    "v.position_embd.weight": (16, 16),
    **dict.fromkeys(("mm.2.weight", "mm.model.fc.weight", "mm.model.mlp.3.weight"), (WIDTH, WIDTH)),
}
TEXT = {"general.architecture": "llama", "llama.embedding_length": WIDTH}


def described(kind, changes=()):
    return describe_projector(Projector(FILE, kind, {**METADATA, **dict(changes)}, SHAPES), TEXT)


@pytest.mark.parametrize(
    ("kind", "heads", "numbers"),
    [("pixtral", 16, 2), ("pixtral", 3, 2), ("qwen2vl_merger", 8, 4), ("qwen3vl_merger", 3, 4)],
)
def test_heads_that_cannot_be_rotated_are_refused(kind, heads, numbers):
    assert described(kind)
    with pytest.raises(ModelLoadError) as refused:
        described(kind, {"clip.vision.attention.head_count": heads})
    expected = f"heads of a multiple of {numbers} numbers, of embedding_length 16, got '{heads}'"
    assert refused.value.message == f"{FILE}: attention.head_count must be {expected}"


@pytest.mark.parametrize("kind", ["mlp", "pixtral"])
@pytest.mark.parametrize(("size", "patch"), [(16384, 1), (8, 16)])
def test_images_of_too_many_patches_or_none_are_refused(kind, size, patch):
    with pytest.raises(ModelLoadError, match=r"image_size must be 1 to 512 times the patch_size, \d+, got '\d+'"):
        described(kind, {"clip.vision.image_size": size, "clip.vision.patch_size": patch})


MOST_PINPOINTS = [32] * 130


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("internvl", {"preproc_max_tiles": 1 << 20}, "preproc_max_tiles must be an integer from 1 to 256"),
        ("idefics3", {"preproc_image_size": 32 * 17}, "preproc_image_size must be an integer from 1 to 512"),
        ("mlp", {"image_grid_pinpoints": MOST_PINPOINTS}, "image_grid_pinpoints must be 1 to 64 pairs of integers"),
        ("mlp", {"image_grid_pinpoints": [32, 1024]}, "image_grid_pinpoints must be 1 to 64 pairs of integers from 1"),
    ],
)
def test_images_of_too_many_tiles_are_refused(kind, changes, words):
    """Which shapes of tiles fit is looked up image by image, in a child that has 30 seconds and 2 GiB."""
    assert described(kind)
    with pytest.raises(ModelLoadError) as refused:
        described(kind, {f"clip.vision.{name}": value for name, value in changes.items()})
    assert str(FILE) in refused.value.message
    assert words in refused.value.message
