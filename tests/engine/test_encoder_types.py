"""Encoders in bfloat16, as on processors that multiply it, see and hear what they do in float32."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from engine.core import build
from engine.execution import media
from tests.engine import hearing_folders, seeing_folders
from tests.engine.test_hearing import engine_messages as messages_with_sounds
from tests.engine.test_images import GREEDY
from tests.engine.test_images import engine_messages as messages_with_images
from tests.engine.ultravox_folders import write_ultravox

IMAGE, SOUND = seeing_folders.image_of(40, 30, 1), hearing_folders.sound_of(0.7, 1)
LIKENESS = 0.998
"""Of each vector, as a cosine. That of Pixtral was the least, 0.9996."""


def vectors(engine, monkeypatch, messages) -> list[torch.Tensor]:
    """Return what the encoder makes of the media of a message."""
    found = []
    checked = media._checked

    def note(item, encoded):
        found.append(encoded.vectors)
        return checked(item, encoded)

    with monkeypatch.context() as patch:
        patch.setattr(media, "_checked", note)
        engine.submit("seen", messages=messages, **GREEDY)
        engine.events_to_end("seen")
    return found


WRITERS = {
    **{kind: partial(seeing_folders.write_seeing, family=kind) for kind in seeing_folders.FAMILIES},
    **{kind: partial(hearing_folders.write_hearing, family=kind) for kind in hearing_folders.FAMILIES},
    "ultravox": write_ultravox,
}
"""What writes a random model of each kind into a folder."""


@pytest.mark.parametrize("kind", WRITERS)
def test_vectors_in_bfloat16_are_like_those_in_float32(tmp_path, make_real_engine, monkeypatch, kind):
    monkeypatch.setattr(build, "has_pairs", lambda: True)
    folder = tmp_path / kind
    folder.mkdir()
    WRITERS[kind](folder)
    if kind in seeing_folders.FAMILIES:
        messages = messages_with_images([["what is it?", IMAGE]])
    else:
        messages = messages_with_sounds([["what is it?", SOUND]])
    (exact,) = vectors(make_real_engine(folder, weights="float32"), monkeypatch, messages)
    (found,) = vectors(make_real_engine(folder, weights="bf16"), monkeypatch, messages)
    assert (exact.dtype, found.dtype) == (torch.float32, torch.bfloat16)
    assert torch.cosine_similarity(found.float(), exact, dim=-1).min() > LIKENESS
