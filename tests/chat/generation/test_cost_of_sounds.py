"""Sound is charged by the length that it cannot exceed: what its head says if it is a plain WAV, else the longest."""

import base64
import struct

import pytest

from chat.generation.cost import request_cost
from engine.api import GenerationRequest, Speech, Task

LONGEST = 3_600 * 50
"""Tokens of the longest sound that is taken."""


def cost(data: bytes | str):
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    return request_cost(GenerationRequest("run", "m", (), 0.0, task=Task.TRANSCRIBE, speech=Speech(text)), ())


def head(tag=1, channels=1, rate=16_000, bits=16):
    return b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, tag, channels, rate, 1, 1, bits)


@pytest.mark.parametrize("rate", [8_000, 16_000, 48_000])
def test_a_plain_wav_is_bounded_by_the_length_that_its_head_says(rate):
    charged = cost(head(rate=rate) + b"data" + bytes(320_004))
    seconds = 160_000 / rate
    assert 50 * seconds <= charged.input_bound <= 50 * seconds + 5
    assert charged.input_tokens <= charged.input_bound
    assert 15 * seconds <= charged.output_bound <= 15 * (seconds + 31)


@pytest.mark.parametrize(
    "data",
    [
        b"fLaC" + bytes(8_000),
        b"ID3" + bytes(8_000),
        head(tag=0x11) + bytes(8_000),
        head(channels=0) + bytes(8_000),
        head(rate=0) + bytes(8_000),
        head(bits=0) + bytes(8_000),
        head()[:30],
        head().replace(b"fmt ", b"LIST") + bytes(8_000),
        b"",
        "no base64",
    ],
)
def test_other_sound_is_bounded_by_the_longest_as_its_bytes_say_nothing_of_its_length(data):
    assert cost(data).input_bound >= LONGEST


def test_no_sound_is_charged_for_more_than_the_longest():
    charged = cost(head(rate=1_000, bits=8) + bytes(4_000_000))
    assert LONGEST <= charged.input_bound <= LONGEST + 1
