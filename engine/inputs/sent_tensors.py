"""Read tensors that clients send: base64 of a .npy file, or of a safetensors file with one tensor.

Both are a header and plain numbers. Nothing is unpickled, and no header makes this allocate more than was sent
(CVE-2025-62164: a server that unpickled them ran the client's code).
Formats: numpy.lib.format; github.com/huggingface/safetensors.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from typing import TYPE_CHECKING, Any

from engine.api.errors import ErrorCode, RequestError
from engine.messages import MediaTensor

if TYPE_CHECKING:
    import numpy as np

NPY_MAGIC = b"\x93NUMPY"
DTYPES = {"F16": "float16", "F32": "float32", "BF16": "bfloat16"}
"""Names in safetensors files, and ours."""
KINDS = ("float16", "float32")
"""What .npy files may hold. They know no bfloat16."""
FORMS = "base64 of a .npy file, or of a safetensors file with one tensor"
BFLOAT16_EXPONENT = 0x7F80
MAX_HEADER_BYTES, MAX_DIMENSIONS = 10_000, 3


@dataclass(frozen=True, slots=True)
class SentTensor:
    """A matrix of finite numbers (N, E)."""

    tensor: MediaTensor
    content_hash: str
    """Of dtype, shape and numbers."""

    @property
    def num_rows(self) -> int:
        return self.tensor.shape[0]

    @property
    def width(self) -> int:
        return self.tensor.shape[1]


def read_matrix(encoded: str, name: str, param: str) -> SentTensor:
    """Return the matrix (N, E), or (1, N, E), of a base64 text. Raises RequestError, which names `param`."""
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise _refused(f"must be {FORMS}; this is no base64", param) from None
    tensor = _npy(data, name, param) if data.startswith(NPY_MAGIC) else _safetensors(data, name, param)
    if len(tensor.shape) == 3 and tensor.shape[0] == 1:
        tensor = MediaTensor(name, tensor.dtype, tensor.shape[1:], tensor.data)
    if len(tensor.shape) != 2 or 0 in tensor.shape:
        raise _no_matrix(tensor.shape, param)
    if not _is_finite(tensor):
        raise _refused("must hold finite numbers; got NaN or infinity", param)
    digest = sha256(f"{tensor.dtype} {tensor.shape} ".encode() + tensor.data).hexdigest()
    return SentTensor(tensor, digest)


def _npy(data: bytes, name: str, param: str) -> MediaTensor:
    import numpy as np  # noqa: PLC0415  # a worker of models has none of it until somebody sends a tensor
    from numpy.lib import format as npy_format  # noqa: PLC0415

    file = io.BytesIO(data)
    try:
        version = npy_format.read_magic(file)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, is_fortran, dtype = read(file, max_header_size=MAX_HEADER_BYTES)
    except Exception as error:  # whatever Python's parser makes of strangers' text
        raise _refused("must be a whole .npy file; its header cannot be read", param) from error
    if dtype.hasobject or dtype.newbyteorder("=").name not in KINDS:
        kind = "Python objects" if dtype.hasobject else str(dtype)[:40]
        raise _refused(f"must hold {' or '.join(KINDS)}; got {kind}", param)
    numbers = data[file.tell() :]
    if len(shape) > MAX_DIMENSIONS or any(type(length) is not int for length in shape):
        raise _refused(f"must have at most {MAX_DIMENSIONS} dimensions, each a number", param)
    if 0 in shape:
        raise _no_matrix(shape, param)
    if any(length < 0 for length in shape) or len(numbers) != prod(shape) * dtype.itemsize:
        raise _refused("must be a whole .npy file; its header says another size than it has", param)
    array = np.frombuffer(numbers, dtype).reshape(shape, order="F" if is_fortran else "C")
    array = np.array(array, dtype.newbyteorder("="), order="C")
    return MediaTensor(name, array.dtype.name, list(array.shape), array.tobytes())


def _safetensors(data: bytes, name: str, param: str) -> MediaTensor:
    from safetensors import SafetensorError, deserialize  # noqa: PLC0415  # as numpy above

    if int.from_bytes(data[:8], "little") > MAX_HEADER_BYTES:
        raise _refused(f"must be {FORMS}; this is neither", param)
    try:
        tensors: list[tuple[str, dict[str, Any]]] = deserialize(data)
    except (SafetensorError, ValueError, OverflowError) as error:
        raise _refused(f"must be {FORMS}; this is neither", param) from error
    if len(tensors) != 1:
        raise _refused(f"must be a file with one tensor; got {len(tensors)}", param)
    ((_, tensor),) = tensors
    if tensor["dtype"] not in DTYPES:
        raise _refused(f"must hold {', '.join(DTYPES.values())}; got {str(tensor['dtype'])[:40]}", param)
    return MediaTensor(name, DTYPES[tensor["dtype"]], list(tensor["shape"]), bytes(tensor["data"]))


def _is_finite(tensor: MediaTensor) -> bool:
    import numpy as np  # noqa: PLC0415  # as above

    if tensor.dtype == "bfloat16":
        bits: np.ndarray = np.frombuffer(tensor.data, "<u2")
        return not bool(((bits & BFLOAT16_EXPONENT) == BFLOAT16_EXPONENT).any())
    return bool(np.isfinite(np.frombuffer(tensor.data, tensor.dtype)).all())


def _no_matrix(shape: Sequence[int], param: str) -> RequestError:
    found = " x ".join(map(str, shape))[:80] or "no dimension"
    return _refused(f"must have a row of numbers for each token, shape (tokens, width); got {found}", param)


def _refused(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, f"{param} {message}", param)
