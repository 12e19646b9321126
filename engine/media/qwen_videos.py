"""The inputs of the encoder for a video of Qwen-VL, and the text that stands for it.

Processors of transformers for videos need torchvision, so their few forms are written here: sizes as the makers of the
models have them (https://github.com/QwenLM/Qwen3-VL), frames by Pillow, patches as the tower has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from engine.media.qwen_images import LEAST, MOST, pixels_check

TOKEN, START, END = "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
AROUND = START, END
"""What templates write around the token, and what the text of frames with times takes the place of too."""
VIDEO_PIXELS = 24_576 * 32 * 32
"""Of all frames together, for every model: what Qwen3-VL's processor has."""
IMAGES_OF_VIDEO, MOST_TOKENS = 4, 16_384
"""A video may have the tokens of so many images, of so many tokens each unless the server says fewer."""
FRAME_TOKENS = 768
"""Of a frame at most."""
LEAST_TOKENS = 128
"""Of a frame of Qwen2-VL and Qwen2.5-VL at least, if the folder does not say."""
DEFAULT_FPS, MIN_FRAMES, MAX_FRAMES = 2.0, 4, 768


@dataclass(frozen=True, slots=True)
class QwenVideos:
    """The videos of one folder. Pixels of Qwen3-VL are of the whole video, of the others those of a frame."""

    has_times: bool
    """Frames have their times in the text, as those of Qwen3-VL."""
    patch: int
    merge: int
    temporal: int
    least_pixels: int
    most_pixels: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    fps: float
    min_frames: int
    max_frames: int
    video_pixels: int
    """Of all frames together at most."""

    @classmethod
    def read(cls, values: Mapping[str, Any], config: Any, images: Any, most_tokens: int = MOST_TOKENS) -> QwenVideos:
        """Read what a model's files say of videos. `images`: its image processor. `most_tokens`: of an image."""
        vision, has_times = config.vision_config, config.model_type == "qwen3_vl"
        side = vision.patch_size * vision.spatial_merge_size
        size = values["size"] if isinstance(values.get("size"), Mapping) else {}
        least = LEAST_TOKENS * side * side
        most = VIDEO_PIXELS if has_times else FRAME_TOKENS * side * side
        return cls(
            has_times=has_times,
            patch=vision.patch_size,
            merge=vision.spatial_merge_size,
            temporal=vision.temporal_patch_size,
            least_pixels=int(values.get("min_pixels") or size.get("shortest_edge") or least),
            most_pixels=int(values.get("max_pixels") or size.get("longest_edge") or most),
            mean=tuple(values.get("image_mean") or images.image_mean),
            deviation=tuple(values.get("image_std") or images.image_std),
            fps=float(values.get("fps") or DEFAULT_FPS),
            min_frames=int(values.get("min_frames") or MIN_FRAMES),
            max_frames=int(values.get("max_frames") or MAX_FRAMES),
            video_pixels=min(VIDEO_PIXELS, IMAGES_OF_VIDEO * most_tokens * side * side * vision.temporal_patch_size),
        )

    @property
    def frame_pixels(self) -> int:
        """The most that a frame keeps."""
        return min(self.most_pixels, FRAME_TOKENS * self._side**2 if self.has_times else self.most_pixels)

    @property
    def _side(self) -> int:
        return self.patch * self.merge

    def prepare(
        self,
        frames: NDArray[np.uint8],
        times: tuple[float, ...],
        seconds: float,
        options: Mapping[str, int] | None = None,
    ) -> tuple[str, int, dict[str, NDArray[Any]]]:
        """Return the text of a video, how many of its tokens get vectors, and the inputs of the encoder.

        frames: (N, H, W, 3), shown at `times` of its `seconds`. `options`: of the request (qwen_images.py). Raises
        ValueError for a shape that no model takes, and RequestError.
        """
        height, width = self.size(len(frames), *frames.shape[1:3], options or {})
        resized = np.stack([_resized(frame, height, width) for frame in frames])
        short = -len(frames) % self.temporal
        resized = np.concatenate((resized, np.repeat(resized[-1:], short, axis=0)))
        grid = (len(resized) // self.temporal, height // self.patch, width // self.patch)
        num_tokens = grid[1] * grid[2] // self.merge**2
        tensors: dict[str, NDArray[Any]] = {
            "pixel_values_videos": self._patches(resized, grid),
            "video_grid_thw": np.array([grid], np.int64),
            "second_per_grid_ts": np.array([self.temporal * seconds / len(frames)], np.float32),
        }
        if not self.has_times:
            return TOKEN * num_tokens * grid[0], num_tokens * grid[0], tensors
        shown = [*times, *times[-1:] * short]
        text = ""
        for first in range(0, len(shown), self.temporal):
            middle = (shown[first] + shown[first + self.temporal - 1]) / 2
            text += f"<{middle:.1f} seconds>{START}{TOKEN * num_tokens}{END}"
        return text, num_tokens * grid[0], tensors

    def size(self, num_frames: int, height: int, width: int, options: Mapping[str, int]) -> tuple[int, int]:
        """Return the height and width of frames, multiples of what a token sees. Raises ValueError, RequestError.

        `options` are of each frame, and admit no more than the folder does.
        """
        pixels_check(options)
        num_frames += -num_frames % self.temporal
        share, parts = self.video_pixels // num_frames, num_frames if self.has_times else 1
        least = min(options.get(LEAST, math.ceil(self.least_pixels / parts)), share)
        most = min(self.frame_pixels, self.most_pixels // parts, share, options.get(MOST, share))
        if MOST not in options:
            most = max(most, min(int(least * 1.05), share))
        return smart_resize(height, width, self._side, min(least, most), most)

    def _patches(self, frames: NDArray[np.uint8], grid: tuple[int, int, int]) -> NDArray[np.float32]:
        """Return the patches of frames (N, H, W, 3), squares of tokens one after the other: (patches, numbers)."""
        scale = (1 / (255 * np.array(self.deviation))).astype(np.float32)
        offset = (np.array(self.mean) / np.array(self.deviation)).astype(np.float32)
        (times, rows, columns), merge, patch = grid, self.merge, self.patch
        shape = (self.temporal, rows // merge, merge, patch, columns // merge, merge, patch, 3)
        order = (1, 4, 2, 5, 7, 0, 3, 6)
        patches = np.empty((times, rows * columns, 3 * self.temporal * patch * patch), np.float32)
        for time in range(times):  # the pixels of a whole video take 300 MB as numbers
            shown = frames[time * self.temporal : (time + 1) * self.temporal] * scale - offset
            patches[time] = shown.reshape(shape).transpose(order).reshape(rows * columns, -1)
        return patches.reshape(times * rows * columns, -1)


def _resized(frame: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    if frame.shape[:2] == (height, width):
        return frame
    return np.asarray(Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC))
