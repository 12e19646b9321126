"""What the encoder of images takes is within what is planned for it, for each family; no family is planned by guess."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.execution.media import as_tensor
from engine.loading.safetensors_file import read_part
from engine.loading.tower_size import PHI, read_sounds, read_tower
from engine.media.image_inputs import answer
from engine.messages import MediaTensor
from engine.models.transformers_backend.media_config import FEATURES, FRAMES_MASK
from engine.models.transformers_backend.media_encoder import TransformersMediaEncoder, folder_model
from engine.models.transformers_backend.phi_media_encoder import PREFIX, PhiMediaEncoder
from engine.models.transformers_backend.qwen_media_encoder import QwenMediaEncoder
from engine.models.transformers_backend.sound_encoder import SoundEncoder
from tests.engine.hearing_folders import FAMILIES as HEARING
from tests.engine.hearing_folders import write_hearing
from tests.engine.seeing_folders import FAMILIES, image_of, write_seeing

MOST_TOKENS = 36


class PeakBytes(TorchDispatchMode):
    """Counts the memory of tensors that operations make, and remembers the most, with those that are `given`."""

    def __init__(self, given):
        super().__init__()
        self.now = self.most = sum(tensor.nbytes for tensor in given)
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in given}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and (storage := tensor.untyped_storage())._cdata not in self._sizes:
                self._sizes[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self._free, storage._cdata)
        self.most = max(self.most, self.now)
        return made

    def _free(self, place):
        self.now -= self._sizes.pop(place)


def inputs_of(path, image):
    made = answer("prepare", str(path), "", MOST_TOKENS, image.tobytes(), image.height, image.width)
    return {one[0]: as_tensor(MediaTensor(*one)) for one in made["tensors"]}, made["num_vectors"]


def encoder_of(path, family):
    if family == PHI:
        return PhiMediaEncoder.load(path, read_part(path, PREFIX), torch.device("cpu"), torch.float32)
    kind = QwenMediaEncoder if family.startswith("qwen") else TransformersMediaEncoder
    return kind(folder_model(path, torch.float32), torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_largest_image_takes_no_more_than_is_planned(tmp_path, family):
    write_seeing(tmp_path, family)
    encoder = encoder_of(tmp_path, family)
    tensors, count = inputs_of(tmp_path, image_of(300, 300))
    planned = read_tower(tmp_path, MOST_TOKENS).step_bytes(1, torch.float32)
    most = 0
    for part in [tensors] if family == PHI else encoder.cut(tensors, count, 1):
        with PeakBytes(part.values()) as peak, torch.inference_mode():
            encoder.encode(part)
        most = max(most, peak.most)
    assert planned / 8 < most <= planned


@pytest.mark.parametrize("family", HEARING)
def test_a_window_of_sound_takes_no_more_than_is_planned(tmp_path, family):
    model, _ = write_hearing(tmp_path, family)
    tower = model.config.audio_config
    tensors = {FEATURES: torch.zeros(2, tower.num_mel_bins, 2 * tower.max_source_positions)}
    if family == "qwen2_audio":
        tensors = {FEATURES: tensors[FEATURES][:1], FRAMES_MASK: torch.ones(1, 2 * tower.max_source_positions)}
    encoder = SoundEncoder.load(tmp_path, torch.device("cpu"), torch.float32)
    with PeakBytes([tensors[FEATURES][0]]) as peak:
        encoder.encode(tensors)
    planned = read_sounds(tmp_path, 30).step_bytes(1, torch.float32)
    assert planned / 8 < peak.most <= planned


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != PHI])
def test_images_that_are_encoded_together_or_in_parts_have_the_vectors_of_each(tmp_path, family):
    write_seeing(tmp_path, family)
    encoder = encoder_of(tmp_path, family)
    items = [
        inputs_of(tmp_path, image_of(*size, seed)) for seed, size in enumerate([(40, 30), (90, 40), (64, 64), (40, 30)])
    ]
    forms = {}
    for tensors, count in items:
        named = [
            MediaTensor(name, str(one.dtype).removeprefix("torch."), list(one.shape), b"")
            for name, one in tensors.items()
        ]
        forms.setdefault(encoder.form_of(named), []).append((tensors, count))
    assert (None in forms) == (family in ("pixtral", "mistral3"))
    largest = max(forms.values(), key=len)
    assert len(largest) >= 2
    for form, members in forms.items():
        if form is None:
            continue
        together = encoder.encode_together([tensors for tensors, _ in members], [count for _, count in members])
        for (tensors, count), found in zip(members, together, strict=True):
            alone = encoder.encode(tensors)
            assert len(alone.vectors) == count
            torch.testing.assert_close(found.vectors, alone.vectors, atol=1e-4, rtol=1e-4)
            for name in ("places", "deep"):
                one, other = getattr(found, name), getattr(alone, name)
                assert (one is None) == (other is None)
                if one is not None:
                    torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
            parts = [encoder.encode(part).vectors for part in encoder.cut(tensors, count, 1)]
            torch.testing.assert_close(torch.cat(parts), alone.vectors, atol=1e-4, rtol=1e-4)
