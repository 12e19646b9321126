"""Tensors that clients send: what is read, and that nothing else is, whatever the bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from engine.api.errors import RequestError
from engine.inputs.sent_tensors import read_matrix
from tests.engine.inputs.hostile_tensors import HOSTILE, ROWS, encoded, npy


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (npy(ROWS), "float32"),
        (npy(ROWS[None]), "float32"),
        (npy(np.asfortranarray(ROWS)), "float32"),
        (npy(ROWS.astype(">f4")), "float32"),
        (npy(ROWS.astype(np.float16)), "float16"),
        (save({"x": torch.from_numpy(ROWS)}), "float32"),
        (save({"x": torch.from_numpy(ROWS).half()}), "float16"),
        (save({"x": torch.from_numpy(ROWS).bfloat16()}), "bfloat16"),
    ],
    ids=["plain", "batched", "columns", "big-endian", "half", "safe", "safe half", "safe bfloat16"],
)
def test_a_matrix_is_read(data, dtype):
    sent = read_matrix(encoded(data), "given", "prompt_embeds")
    assert (sent.tensor.name, sent.tensor.dtype, sent.num_rows, sent.width) == ("given", dtype, 3, 4)
    values = torch.frombuffer(bytearray(sent.tensor.data), dtype=getattr(torch, dtype)).float()
    assert values.tolist() == ROWS.ravel().tolist()


def test_the_hash_tells_form_and_numbers_apart():
    forms = [ROWS, ROWS.reshape(4, 3), ROWS.astype(np.float16), ROWS + 1]
    assert len({read_matrix(encoded(npy(form)), "given", "x").content_hash for form in forms}) == 4
    same = {read_matrix(encoded(data), "given", "x").content_hash for data in (npy(ROWS), npy(ROWS[None]))}
    assert len(same) == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_all_else_is_refused_by_name(name):
    text, words = HOSTILE[name]
    with pytest.raises(RequestError) as caught:
        read_matrix(text, "given", "messages.0.content.1.image_embeds")
    assert caught.value.message.startswith("messages.0.content.1.image_embeds must ")
    assert words in caught.value.message
    assert caught.value.param == "messages.0.content.1.image_embeds"


@given(st.binary(max_size=400), st.sampled_from([b"", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00", npy(ROWS)[:60]]))
def test_no_bytes_do_more_than_be_refused(data, head):
    try:
        sent = read_matrix(encoded(head + data), "given", "x")
    except RequestError:
        return
    assert len(sent.tensor.data) <= len(head + data)
