"""Sizes of videos, the text that stands for them, and their frames as patches."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from engine.api.errors import RequestError
from engine.media.qwen_videos import FRAME_TOKENS, VIDEO_PIXELS, QwenVideos

IMAGES = SimpleNamespace(image_mean=[0.5, 0.4, 0.3], image_std=[0.5, 0.25, 0.2])


def videos(tmp_path, kind="qwen2_vl", patch=14, **values):
    vision = SimpleNamespace(patch_size=patch, spatial_merge_size=2, temporal_patch_size=2)
    return QwenVideos.read(values, SimpleNamespace(vision_config=vision, model_type=kind), IMAGES)


@pytest.mark.parametrize(
    ("kind", "patch", "num_frames", "height", "width", "size"),
    [
        ("qwen2_vl", 14, 4, 360, 640, (364, 644)),
        ("qwen2_vl", 14, 4, 1080, 1920, (560, 1008)),
        ("qwen2_vl", 14, 4, 90, 160, (252, 448)),
        ("qwen3_vl", 16, 4, 360, 640, (352, 640)),
        ("qwen3_vl", 16, 4, 1080, 1920, (640, 1152)),
    ],
)
def test_frames_have_multiples_of_what_a_token_sees(tmp_path, kind, patch, num_frames, height, width, size):
    assert videos(tmp_path, kind, patch).size(num_frames, height, width, {}) == size


@pytest.mark.parametrize(("kind", "patch"), [("qwen2_vl", 14), ("qwen3_vl", 16)])
@pytest.mark.parametrize("num_frames", [1, 2, 31, 64, 128])
def test_all_frames_together_are_bounded(tmp_path, kind, patch, num_frames):
    found = videos(tmp_path, kind, patch)
    for height, width in ((1, 150), (480, 640), (2304, 4096), (4096, 2304)):
        rows, columns = found.size(num_frames, height, width, {})
        assert rows % (2 * patch) == columns % (2 * patch) == 0
        assert rows * columns <= FRAME_TOKENS * (2 * patch) ** 2
        assert rows * columns * num_frames <= VIDEO_PIXELS + num_frames * 2 * patch * max(rows, columns)


def test_a_shape_that_no_model_takes_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="aspect ratio"):
        videos(tmp_path).size(4, 2, 600, {})


def test_folders_say_rates_sizes_and_colours_or_leave_them_out(tmp_path):
    plain = videos(tmp_path)
    assert (plain.fps, plain.min_frames, plain.max_frames, plain.mean) == (2.0, 4, 768, (0.5, 0.4, 0.3))
    given = videos(tmp_path, fps=1, min_frames=2, max_frames=16, min_pixels=784, max_pixels=7840, image_mean=[0, 0, 0])
    assert (given.fps, given.min_frames, given.max_frames, given.mean) == (1.0, 2, 16, (0, 0, 0))
    assert (given.least_pixels, given.most_pixels, given.frame_pixels) == (784, 7840, 7840)


def test_an_odd_frame_is_shown_twice(tmp_path):
    found = videos(tmp_path, "qwen3_vl", 2, size={"shortest_edge": 16, "longest_edge": 4096})
    frames = np.arange(3 * 4 * 8 * 3, dtype=np.uint8).reshape(3, 4, 8, 3)
    text, count, tensors = found.prepare(frames, (0.0, 0.5, 1.25), 2.0)
    assert text == "".join(
        f"<{middle} seconds><|vision_start|><|video_pad|><|video_pad|><|vision_end|>" for middle in ("0.2", "1.2")
    )
    assert (count, tensors["video_grid_thw"].tolist()) == (4, [[2, 2, 4]])
    last = tensors["pixel_values_videos"][8:].reshape(8, 3, 2, 2, 2)
    assert np.array_equal(last[:, :, 0], last[:, :, 1])
    np.testing.assert_allclose(
        last[0, :, 0, 0, 0], (frames[2, 0, 0] / 255 - IMAGES.image_mean) / IMAGES.image_std, 1e-5
    )


@pytest.mark.parametrize(("kind", "patch"), [("qwen2_vl", 14), ("qwen3_vl", 16)])
def test_a_request_bounds_the_pixels_of_a_frame(tmp_path, kind, patch):
    found, side = videos(tmp_path, kind, patch), 2 * patch
    rows, columns = found.size(4, 480, 640, {"max_pixels": 40 * side**2})
    assert rows * columns <= 40 * side**2
    assert found.size(4, 480, 640, {"max_pixels": side**2}) == (side, side)
    rows, columns = found.size(4, side, 2 * side, {"min_pixels": 200 * side**2})
    assert rows * columns >= 200 * side**2
    rows, columns = found.size(128, 480, 640, {"min_pixels": 12_000_000})
    assert rows * columns * 128 <= VIDEO_PIXELS + 128 * side * max(rows, columns)
    with pytest.raises(RequestError, match="min_pixels must not be above max_pixels"):
        found.size(4, 480, 640, {"min_pixels": 2000, "max_pixels": 1000})
