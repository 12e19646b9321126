"""Tensors that clients send: what is read, and that nothing else is, whatever the bytes."""

from __future__ import annotations

import base64
import io
import pickle
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from engine.api.errors import RequestError
from engine.inputs.sent_tensors import read_matrix

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def npy(array: np.ndarray, *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def npy_of_header(header: str, numbers: bytes = b"") -> bytes:
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + numbers


def safetensors_of_header(header: str, numbers: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header.encode() + numbers


def bits(value: int) -> torch.Tensor:
    return torch.tensor([[value]], dtype=torch.int16).view(torch.bfloat16)


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


HOSTILE = {
    "no base64": ("***", "base64"),
    "empty": ("", "neither"),
    "text": (encoded(b"hello, these are no numbers"), "neither"),
    "pickle": (encoded(pickle.dumps(ROWS)), "neither"),
    "zip of torch.save": (encoded(b"PK\x03\x04" + bytes(60)), "neither"),
    "objects": (encoded(npy(np.array([[{}]], dtype=object), allow_pickle=True)), "Python objects"),
    "structures": (encoded(npy(np.zeros((2, 2), dtype=[("a", "f4")]))), "must hold float16 or float32"),
    "doubles": (encoded(npy(ROWS.astype(np.float64))), "got float64"),
    "integers": (encoded(npy(ROWS.astype(np.int32))), "got int32"),
    "complex": (encoded(npy(ROWS.astype(np.complex64))), "got complex64"),
    "NaN": (encoded(npy(ROWS * np.nan)), "finite"),
    "infinity": (encoded(npy(ROWS + np.inf)), "finite"),
    "half infinity": (encoded(npy(np.array([[np.inf]], np.float16))), "finite"),
    "bfloat16 NaN": (encoded(save({"x": bits(0x7FC0)})), "finite"),
    "bfloat16 minus infinity": (encoded(save({"x": bits(0xFF80 - (1 << 16))})), "finite"),
    "a number": (encoded(npy(np.float32(1))), "no dimension"),
    "a row": (encoded(npy(ROWS[0])), "got 4"),
    "two batches": (encoded(npy(np.zeros((2, 3, 4), np.float32))), "2 x 3 x 4"),
    "no rows": (encoded(npy(np.zeros((0, 4), np.float32))), "0 x 4"),
    "no columns": (encoded(npy(np.zeros((3, 0), np.float32))), "3 x 0"),
    "cut": (encoded(npy(ROWS)[:-1]), "another size"),
    "cut header": (encoded(npy(ROWS)[:20]), "header"),
    "more than it says": (encoded(npy(ROWS) + b"x"), "another size"),
    "version 9": (encoded(b"\x93NUMPY\x09\x00" + bytes(40)), "header"),
    "huge shape": (
        encoded(npy_of_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 4096), }")),
        "another size",
    ),
    "overflowing shape": (
        encoded(npy_of_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**63}, {2**63}), }}")),
        "another size",
    ),
    "negative shape": (
        encoded(npy_of_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -1), }", bytes(4))),
        "another size",
    ),
    "code in the header": (
        encoded(npy_of_header("__import__('os').system('true')")),
        "header",
    ),
    "deep header": (encoded(npy_of_header("[" * 9000)), "header"),
    "long header": (encoded(npy_of_header("{'descr': '<f4'" + " " * 20_000)), "header"),
    "two tensors": (encoded(save({"x": torch.ones(1, 2), "y": torch.ones(1, 2)})), "got 2"),
    "no tensor": (encoded(safetensors_of_header("{}")), "got 0"),
    "bytes": (encoded(save({"x": torch.ones(1, 2, dtype=torch.uint8)})), "got U8"),
    "safe cut": (encoded(save({"x": torch.ones(8, 8)})[:-4]), "neither"),
    "safe header beyond the file": (encoded(struct.pack("<Q", 2**40) + b"{}"), "neither"),
    "safe offsets that lie": (
        encoded(safetensors_of_header('{"x":{"dtype":"F32","shape":[2,2],"data_offsets":[0,8]}}', bytes(8))),
        "neither",
    ),
    "safe offsets beyond": (
        encoded(safetensors_of_header('{"x":{"dtype":"F32","shape":[2,2],"data_offsets":[4096,4112]}}', bytes(16))),
        "neither",
    ),
    "safe overflow": (
        encoded(safetensors_of_header(f'{{"x":{{"dtype":"F32","shape":[{2**62},16],"data_offsets":[0,0]}}}}')),
        "neither",
    ),
}


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
