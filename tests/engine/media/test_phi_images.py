"""Images of Phi-4-multimodal as inputs of its encoder.

The numbers are those of Phi4MultimodalImageProcessor (transformers 5.23 with torchvision 0.28), which needs a
torchvision that no torch without CUDA loads.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine.api import ModelLoadError
from engine.media.phi_images import PhiImages, grid_of
from tests.engine.seeing_folders import image_of

TOLERANCE = 1e-4
"""Of means; single pixels may differ by one of 255, as torch has other sums on other processors."""
STEP = 2 / 255
RECORDED = [
    (448, 448, 36, [448, 448], 545, 2048, (-0.12876, 0.34392), [-0.4667, -0.749, 0.0196], [-0.898, -0.9686, 0.5294]),
    (100, 60, 36, [448, 448], 443, 1664, (0.36348, 0.62826), [-0.6, -0.2549, 0.1843], [-0.4667, -0.749, 0.0196]),
    (900, 300, 36, [448, 1344], 1057, 4096, (-0.06747, 0.30666), [-0.4667, -0.749, 0.0196], [-0.1137, 0.7569, 0.9843]),
    (451, 449, 36, [896, 896], 1329, 5120, (-0.12249, 0.34591), [-0.4667, -0.749, 0.0196], [1.0, 0.5765, -0.8667]),
    (2000, 900, 4, [448, 896], 768, 2880, (-0.01239, 0.43295), [-0.4667, -0.749, 0.0196], [-0.4667, -0.749, 0.0196]),
    (300, 2500, 3, [1344, 448], 609, 2176, (0.64149, 0.77135), [0.9529, -0.8902, 0.5608], [-0.4667, -0.749, 0.0196]),
]
"""Width, height and most squares; the grid's size, tokens, patches that hold something; the mean of all pixels and of
the copy's squares; a pixel of the copy and one of the last square."""


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: f"{one[0]}x{one[1]}")
def test_inputs_are_those_of_the_published_processor(recorded):
    width, height, most, size, num_tokens, num_filled, means, of_copy, of_last = recorded
    text, made = PhiImages("*", 448, 14, 36).prepare(image_of(width, height, 1), 1, {"dynamic_hd": most})
    pixels = made["image_pixel_values"]
    assert text == "*" * num_tokens
    assert made["num_vectors"].tolist() == [num_tokens]
    assert made["image_sizes"].tolist() == [size]
    assert int(made["image_attention_mask"].sum()) == num_filled
    found = (pixels.double().mean().item(), pixels[0, 0].double().pow(2).mean().item())
    assert found == pytest.approx(means, abs=TOLERANCE)
    assert pixels[0, 0, :, 200, 100].tolist() == pytest.approx(of_copy, abs=STEP)
    assert pixels[0, -1, :, 100, 30].tolist() == pytest.approx(of_last, abs=STEP)


def test_an_image_has_no_more_squares_than_its_tokens_may_be(tmp_path):
    config = SimpleNamespace(vision_config=SimpleNamespace(crop_size=448, patch_size=14))
    for most_tokens, expected in ((1280, 3), (16_384, 36), (1, 1)):
        images = PhiImages.read(tmp_path, config, "*", most_tokens)
        assert images.most_squares == expected
        assert images.options == {"dynamic_hd": ["integer", 1, expected]}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("{", "is not JSON"),
        ('{"dynamic_hd": "many"}', "dynamic_hd must be an integer from 1"),
        ('{"image_processor": {"dynamic_hd": -1}}', "dynamic_hd must be an integer from 1"),
        ('{"image_mean": [0.5, 0.5]}', "image_mean must be three positive numbers"),
        ('{"image_std": [0.5, 0.5, 0]}', "image_std must be a positive number"),
    ],
)
def test_what_a_folder_says_wrongly_of_its_images_is_refused(tmp_path, written, words):
    config = SimpleNamespace(vision_config=SimpleNamespace(crop_size=448, patch_size=14))
    (tmp_path / "preprocessor_config.json").write_text(written)
    with pytest.raises(ModelLoadError) as refused:
        PhiImages.read(tmp_path, config, "*", 1280)
    assert str(tmp_path / "preprocessor_config.json") in refused.value.message
    assert words in refused.value.message


@pytest.mark.parametrize("most", [1, 2, 3, 7, 36])
def test_a_grid_never_has_more_squares_than_it_may(most):
    for width in (1, 447, 449, 1000, 4000):
        for height in (1, 448, 900, 5000):
            columns, rows = grid_of(width, height, 448, most)
            assert 1 <= columns * rows <= most


def test_an_image_that_is_too_thin_is_an_error():
    with pytest.raises(ValueError, match="too thin"):
        PhiImages("*", 448, 14, 3).prepare(image_of(5000, 20), 1, {})
