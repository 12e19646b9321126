"""Encoders in bfloat16, as on processors that multiply it, see and hear what they do in float32."""

from __future__ import annotations

import pytest
import torch

from engine.core import build
from engine.execution import media
from tests.engine import hearing_folders, seeing_folders
from tests.engine.test_hearing import engine_messages as messages_with_sounds
from tests.engine.test_images import GREEDY
from tests.engine.test_images import engine_messages as messages_with_images

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


@pytest.mark.parametrize("kind", [*seeing_folders.FAMILIES, *hearing_folders.FAMILIES])
def test_vectors_in_bfloat16_are_like_those_in_float32(tmp_path, make_real_engine, monkeypatch, kind):
    monkeypatch.setattr(build, "has_pairs", lambda: True)
    if kind in seeing_folders.FAMILIES:
        seeing_folders.write_seeing(tmp_path, kind)
        messages = messages_with_images([["what is it?", IMAGE]])
    else:
        hearing_folders.write_hearing(tmp_path, kind)
        messages = messages_with_sounds([["what is it?", SOUND]])
    (exact,) = vectors(make_real_engine(tmp_path, weights="float32"), monkeypatch, messages)
    (found,) = vectors(make_real_engine(tmp_path, weights="bf16"), monkeypatch, messages)
    assert (exact.dtype, found.dtype) == (torch.float32, torch.bfloat16)
    assert torch.cosine_similarity(found.float(), exact, dim=-1).min() > LIKENESS
