"""The encoder of images and videos of Qwen-VL folders, whose vectors have a time, a row and a column to turn by."""

from __future__ import annotations

from typing import Any

import torch

from engine.layers.embedding import EncodedMedia
from engine.models.transformers_backend.media_encoder import TransformersMediaEncoder, rows_of

IMAGE_GRID, VIDEO_GRID = "image_grid_thw", "video_grid_thw"


class QwenMediaEncoder(TransformersMediaEncoder):
    """A tower with its projector, whose vectors lie on a grid."""

    @torch.inference_mode()
    def encode(self, tensors: dict[str, torch.Tensor]) -> EncodedMedia:
        """Return the vectors of an image or a video, row by row, with their places, or of several that are joined.

        Qwen3-VL has vectors that are added behind layers, too.
        """
        is_video = VIDEO_GRID in tensors
        features = self._video_features(tensors) if is_video else self._features(tensors)
        vectors = rows_of(features.pooler_output)
        deep = getattr(features, "deepstack_features", None)
        grids = tensors[VIDEO_GRID if is_video else IMAGE_GRID].tolist()
        seconds = tensors["second_per_grid_ts"].tolist() if "second_per_grid_ts" in tensors else [0.0] * len(grids)
        places = [
            self._video_places(grid, interval_s) if is_video else self._places(grid)
            for grid, interval_s in zip(grids, seconds, strict=True)
        ]
        deep = torch.stack([rows_of(each) for each in deep]) if deep else None
        return EncodedMedia(vectors, torch.cat(places, 1).to(vectors.device), deep)

    def _video_features(self, tensors: dict[str, torch.Tensor]) -> Any:
        return self._model.get_video_features(
            pixel_values_videos=self._placed(tensors["pixel_values_videos"]),
            video_grid_thw=self._placed(tensors[VIDEO_GRID]),
        )

    def _places(self, grid: list[int]) -> torch.Tensor:
        merge = self._model.config.vision_config.spatial_merge_size
        num_times, height, width = grid
        return grid_places(num_times, height // merge, width // merge)

    def _video_places(self, grid: list[int], interval_s: float) -> torch.Tensor:
        """Return the places of a video: of frames with times in the text, those of images one by one.

        Times of Qwen2.5-VL are as far apart as the frames are, `interval_s`.
        """
        config, places = self._model.config, self._places(grid)
        if config.model_type == "qwen3_vl":
            places[0] = 0
        elif config.model_type == "qwen2_5_vl":
            places[0] = (places[0] * (config.vision_config.tokens_per_second * torch.tensor(interval_s))).long()
        return places


def grid_places(num_times: int, height: int, width: int) -> torch.Tensor:
    """Return time, row and column of the cells of a grid, in this order: (3, num_times * height * width) int64."""
    return torch.cartesian_prod(*(torch.arange(count) for count in (num_times, height, width))).t().contiguous()
