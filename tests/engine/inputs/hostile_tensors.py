"""Tensors of clients that are refused, and by which words: shared by tests of the reader and of a served model."""

from __future__ import annotations

import base64
import io
import pickle
import struct

import numpy as np
import torch
from safetensors.torch import save

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
    "65 dimensions": (
        encoded(npy_of_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(1,) * 65}, }}", bytes(4))),
        "at most 3 dimensions",
    ),
    "no numbers of a huge width": (
        encoded(npy_of_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**100}, 0), }}")),
        "must have",
    ),
    "a shape of truth": (
        encoded(npy_of_header("{'descr': '<f4', 'fortran_order': False, 'shape': (True, 1), }", bytes(4))),
        "dimensions, each a number",
    ),
    "safe with many empty tensors": (
        encoded(
            safetensors_of_header(
                "{" + ",".join(f'"{n}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for n in range(9000)) + "}"
            )
        ),
        "neither",
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
