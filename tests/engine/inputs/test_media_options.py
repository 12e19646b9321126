"""Options of media in a request: what is declared and within its bounds is taken, all else refused by name."""

from __future__ import annotations

import pytest

from engine.api.errors import RequestError
from engine.inputs.media_options import WHITE, image_background, processor_options
from engine.media.options import OPTIONS

DECLARED = {**OPTIONS["gemma3"], "size": ["longest_edge", 16, 1024]}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"do_pan_and_scan": True},
        {"pan_and_scan_max_num_crops": 16, "pan_and_scan_min_crop_size": 16},
        {"pan_and_scan_min_ratio_to_activate": 1.5},
        {"pan_and_scan_min_ratio_to_activate": 2},
        {"size": {"longest_edge": 512}},
    ],
    ids=str,
)
def test_declared_options_are_taken(given):
    assert processor_options({"mm_processor_kwargs": given}, DECLARED) == given


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("trust_remote_code", True, "is no option of this model's processor; it has do_pan_and_scan"),
        ("do_pan_and_scan", 1, "must be true or false, got 1"),
        ("do_pan_and_scan", None, "must be true or false, got null"),
        ("pan_and_scan_max_num_crops", 17, "must be an integer from 2 to 16, got 17"),
        ("pan_and_scan_max_num_crops", True, "must be an integer from 2 to 16, got true"),
        ("pan_and_scan_max_num_crops", 3.0, "must be an integer"),
        ("pan_and_scan_min_ratio_to_activate", float("nan"), "must be a number from 1 to 100"),
        ("pan_and_scan_min_ratio_to_activate", float("inf"), "must be a number from 1 to 100"),
        ("pan_and_scan_min_ratio_to_activate", "2", "must be a number from 1 to 100"),
        ("size", 512, "must be an object with longest_edge, an integer from 16 to 1024, got 512"),
        ("size", {"longest_edge": 2048}, "must be an object with longest_edge, an integer from 16 to 1024"),
        ("size", {"longest_edge": 64, "height": 3}, "must be an object with longest_edge"),
        ("size", {}, "must be an object with longest_edge"),
    ],
)
def test_other_options_are_refused_by_name(name, value, words):
    with pytest.raises(RequestError) as caught:
        processor_options({"mm_processor_kwargs": {name: value}}, DECLARED)
    assert caught.value.param == f"mm_processor_kwargs.{name}"
    assert words in caught.value.message
    assert len(caught.value.message) < 500


def test_a_processor_without_options_says_so():
    with pytest.raises(RequestError, match="it has none"):
        processor_options({"mm_processor_kwargs": {"a": 1}}, {})


def test_the_background_is_white_unless_it_is_given():
    for options in ({}, {"media_io_kwargs": {"image": {}}}):
        assert image_background(options, ["image"]) == WHITE
    options = {"media_io_kwargs": {"image": {"rgba_background_color": [1, 2, 255]}}}
    assert image_background(options, ["image"]) == (1, 2, 255)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"video": {"num_frames": 3}}, "video"),
        ({"image": {"image_mode": "L"}}, "image.image_mode"),
        ({"image": {"rgba_background_color": [1, 2]}}, "image.rgba_background_color"),
        ({"image": {"rgba_background_color": [1, 2, 256]}}, "image.rgba_background_color"),
        ({"image": {"rgba_background_color": [1, 2, True]}}, "image.rgba_background_color"),
        ({"image": {"rgba_background_color": "red"}}, "image.rgba_background_color"),
        ({"image": {"rgba_background_color": None}}, "image.rgba_background_color"),
    ],
    ids=str,
)
def test_other_options_of_decoding_are_refused_by_name(given, param):
    with pytest.raises(RequestError) as caught:
        image_background({"media_io_kwargs": given}, ["image"])
    assert caught.value.param == f"media_io_kwargs.{param}"
