"""The options of processors that a request may set (`mm_processor_kwargs`), by family, with what each may be.

A form is a list: "boolean"; "integer" or "number", the least and the most; "longest_edge", the least and the most of
such an object's one integer. engine/inputs/media_options.py checks values by it.
"""

from __future__ import annotations

MOST_TILES = 40
MOST_CROPS = 16
MOST_SIDE = 4096

Form = list[str | float]
SPLITTING: dict[str, Form] = {"do_image_splitting": ["boolean"]}
OPTIONS: dict[str, dict[str, Form]] = {
    "idefics3": SPLITTING,
    "smolvlm": SPLITTING,
    "internvl": {"crop_to_patches": ["boolean"], "max_patches": ["integer", 1, MOST_TILES]},
    "gemma3": {
        "do_pan_and_scan": ["boolean"],
        "pan_and_scan_min_crop_size": ["integer", 16, MOST_SIDE],
        "pan_and_scan_max_num_crops": ["integer", 2, MOST_CROPS],
        "pan_and_scan_min_ratio_to_activate": ["number", 1, 100],
    },
}
"""By `model_type`."""
