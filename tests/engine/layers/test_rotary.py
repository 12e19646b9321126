import pytest
import torch

from engine.layers.embedding import InputRows
from engine.layers.rotary import RotaryEmbedding, Rotation, adjacent_pairs, rotate

THETA = 10000.0


def half_split_rotation(heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotate by the formula of the paper's common form: halves of a head against each other. heads: (T, H, D)."""
    half = heads.shape[-1] // 2
    angles = positions[:, None].double() * THETA ** -(torch.arange(half).double() / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = heads.double().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).float()


def rotations(positions: torch.Tensor, head_size: int) -> torch.Tensor:
    return RotaryEmbedding.build([Rotation(THETA, head_size, head_size)], torch.device("cpu")).at(positions)[0]


@pytest.mark.parametrize("head_size", [2, 16, 64])
def test_adjacent_pairs_rotate_as_halves_do(head_size):
    positions = torch.tensor([0, 1, 17, 299])
    heads = torch.randn(4, 3, head_size)
    expected = half_split_rotation(heads, positions)
    order = adjacent_pairs(3, head_size, head_size)
    ours = rotate(heads.flatten(1)[:, order].view(4, 3, head_size), 3, rotations(positions, head_size))
    # The angle, up to 299 radians, is a float32 product.
    torch.testing.assert_close(ours, expected.flatten(1)[:, order].view(4, 3, head_size), atol=2e-4, rtol=0)


def test_the_first_heads_are_rotated_in_place_and_the_rest_left_alone():
    buffer = torch.randn(5, 6, 8)
    before = buffer.clone()
    rotated = rotate(buffer, 4, rotations(torch.arange(5), 8))
    assert rotated.data_ptr() == buffer.data_ptr()
    assert torch.equal(buffer[:, 4:], before[:, 4:])
    assert not torch.equal(buffer[:, :4], before[:, :4])


def test_bfloat16_heads_are_rotated_in_float32():
    heads = torch.randn(3, 2, 8).bfloat16()
    angles = rotations(torch.arange(3), 8)
    assert torch.equal(rotate(heads, 1, angles), rotate(heads.float(), 1, angles))


def test_frequency_factors_divide_the_frequencies():
    factors = torch.tensor([1.0, 2.0])
    table = RotaryEmbedding.build([Rotation(THETA, 4, 4)], torch.device("cpu"), factors)
    plain = rotations(torch.tensor([4, 8]), 4)
    assert torch.allclose(table.at(torch.tensor([8]))[0, 0, 0, 1], plain[0, 0, 1])
    assert torch.allclose(table.at(torch.tensor([8]))[0, 0, 0, 0], plain[1, 0, 0])


def test_numbers_behind_the_rotated_ones_stay_and_each_kind_of_layer_has_its_own_rotation():
    kinds = [Rotation(THETA, 4, 8), Rotation(500.0, 8, 8), Rotation(1.0, 0, 8)]
    partial, whole, none = RotaryEmbedding.build(kinds, torch.device("cpu")).at(torch.tensor([3]))
    heads = torch.randn(1, 1, 8)
    assert torch.equal(rotate(heads.clone(), 1, partial)[..., 4:], heads[..., 4:])
    assert torch.equal(partial[..., :2], rotations(torch.tensor([3]), 4))
    assert not torch.equal(rotate(heads.clone(), 1, whole), heads)
    assert torch.equal(rotate(heads.clone(), 1, none), heads)


def test_only_rotated_numbers_are_reordered():
    assert adjacent_pairs(2, 6, 4).tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]


@pytest.mark.parametrize(
    ("is_interleaved", "axes"), [(False, [0, 0, 0, 0, 1, 1, 2, 2]), (True, [0, 1, 2, 0, 1, 2, 0, 0])]
)
def test_tokens_of_images_turn_by_time_row_and_column(is_interleaved, axes):
    rotation = Rotation(THETA, 16, 20, sections=(4, 2, 2), is_interleaved=is_interleaved)
    assert rotation.axes == axes
    rotary = RotaryEmbedding.build([rotation], torch.device("cpu"))
    places = torch.tensor([[5, 5], [6, 7], [8, 9]])
    found = rotary.at(torch.tensor([4, 5, 6, 10]), (InputRows(1, torch.zeros(2, 4), places),))[0, :, 0]
    for row, at in ((0, [4] * 3), (1, [5, 6, 8]), (2, [5, 7, 9]), (3, [10] * 3)):
        for pair, axis in enumerate([*axes, 0, 0]):
            torch.testing.assert_close(found[row, pair], rotary.at(torch.tensor([at[axis]]))[0, 0, 0, pair])
    plain = rotary.at(torch.tensor([4, 5]))
    assert torch.equal(plain, rotary.at(torch.tensor([4, 5]), (InputRows(0, torch.zeros(2, 4)),)))
