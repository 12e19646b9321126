"""The encoder of images of Qwen-VL folders: each vector has a time, a row and a column, by which its token turns."""

from __future__ import annotations

import torch

from engine.layers.embedding import EncodedMedia
from engine.models.transformers_backend.media_encoder import TransformersMediaEncoder, rows_of

IMAGE_GRID = "image_grid_thw"


class QwenMediaEncoder(TransformersMediaEncoder):
    """A tower with its projector, whose vectors lie on a grid."""

    @torch.inference_mode()
    def encode(self, tensors: dict[str, torch.Tensor]) -> EncodedMedia:
        """Return the vectors of one image, row by row, with their places, and what Qwen3-VL adds behind layers."""
        features = self._features(tensors)
        vectors = rows_of(features.pooler_output)
        deep = getattr(features, "deepstack_features", None)
        merge = self._model.config.vision_config.spatial_merge_size
        num_times, height, width = (int(number) for number in tensors[IMAGE_GRID][0])
        places = grid_places(num_times, height // merge, width // merge)
        deep = torch.stack([rows_of(each) for each in deep]) if deep else None
        return EncodedMedia(vectors, places.to(vectors.device), deep)


def grid_places(num_times: int, height: int, width: int) -> torch.Tensor:
    """Return time, row and column of the cells of a grid, in this order: (3, num_times * height * width) int64."""
    return torch.cartesian_prod(*(torch.arange(count) for count in (num_times, height, width))).t().contiguous()
