"""Groups of layers, and the blocks that contexts need in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.attention.cache_groups import LONGEST, CacheGroups, group_layers
from tests.examples import examples


@pytest.mark.parametrize(
    ("windows", "num_tensors", "groups"),
    [
        pytest.param([0] * 30, 30, (0,), id="no windows"),
        pytest.param([4096] * 32, 32, (4096,), id="windows everywhere"),
        pytest.param([4096, 0] * 13, 13, (0, 4096), id="gemma 2"),
        pytest.param(([1024] * 5 + [0]) * 5 + [1024] * 4, 5, (0, *[1024] * 6), id="gemma 3, 4b"),
        pytest.param(([1024] * 5 + [0]) * 10 + [1024] * 2, 10, (0, *[1024] * 6), id="gemma 3, 27b"),
        pytest.param(([4096] * 3 + [0]) * 8, 8, (0, 4096, 4096, 4096), id="olmo 3"),
    ],
)
def test_groups_fill_their_blocks(windows, num_tensors, groups):
    found = group_layers(windows, [1] * len(windows), block_size=16)
    assert (found.num_tensors, found.windows) == (num_tensors, groups)


@examples(60)
@given(st.lists(st.tuples(st.sampled_from([0, 0, 8, 64]), st.sampled_from([1, 2, 3])), min_size=1, max_size=20))
def test_every_layer_has_a_place_of_its_own_in_a_group_with_its_window(layers):
    windows, sizes = zip(*layers, strict=True)
    groups = group_layers(windows, sizes, block_size=16)
    assert len(set(groups.places)) == len(layers)
    for place, (window, size) in zip(groups.places, layers, strict=True):
        assert groups.windows[place.group] == window
        assert (place.part + 1) * size * 16 <= groups.part_size
    assert groups.windows[: groups.num_whole] == (0,) * groups.num_whole


def test_a_layer_that_reads_the_keys_of_another_takes_no_room():
    own = group_layers([8, 0, 8], [1, 2, 1], block_size=16)
    shared = group_layers([8, 0, 8, 8, 0], [1, 2, 1, 1, 2], block_size=16, sources=[None, None, None, 2, 1])
    assert shared.places == (*own.places, own.places[2], own.places[1])
    assert (shared.windows, shared.num_tensors, shared.part_size) == (own.windows, own.num_tensors, own.part_size)


@examples(60)
@given(
    st.lists(st.sampled_from([1, 5, 8, 16, 40]), max_size=3),
    st.integers(0, 2),
    st.integers(1, 30),
    st.integers(3, 200),
    st.integers(1, 300),
)
def test_the_capacity_is_the_longest_sequence_whose_blocks_fit(windows, num_whole, chunk, num_blocks, num_tokens):
    groups = CacheGroups(4, windows=(0,) * num_whole + tuple(windows) or (0,), chunk_tokens=chunk)
    capacity = groups.capacity_tokens(num_blocks)
    assert groups.blocks_for(capacity) <= num_blocks
    assert capacity >= LONGEST - 4 or groups.blocks_for(capacity + 1) > num_blocks
    table = groups.lone_table(num_tokens)
    assert len(table) == groups.num_spans(num_tokens) * groups.count
    assert set(table) == set(range(groups.blocks_for(num_tokens)))
