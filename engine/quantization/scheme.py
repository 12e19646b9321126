"""The choice of weight forms by number of rows, measured on this machine and on the model's shapes while it loads.

Where our own integer products run (AVX2, AVX512-VNNI) they are the only form. They take half the time of torch's
floating point or less, for any number of rows, but for eight bits with AVX2, which take as long at hundreds of rows.
torch's bfloat16 in tiles (AMX) is faster, and there many rows take ours in tiles. torch's integer products have one
scale per row of inputs, which costs quality.

Elsewhere on a CPU no form is best for all numbers of rows. Few rows are bound by reading the weights, so four bits win;
many rows are bound by arithmetic, where eight-bit products or float32 win. A matrix is held in at most two forms.
Builds of torch differ in their operators (those for Macs lack oneDNN), so a form is measured only if it works.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import prod
from threading import Lock
from time import thread_time
from typing import Protocol

import torch

from engine.api.errors import ModelLoadError
from engine.kernels.cpu.integer_vectors import PANEL, has_tiles
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.quantization.gguf_blocks import GROUP_SIZE
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.stored import StoredMatrix
from engine.quantization.torch_forms import (
    DenseWeight,
    Int4Weight,
    Int8PackedWeight,
    Int8Weight,
    quantize_groups,
    quantize_rows,
)

logger = logging.getLogger(__name__)

ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 128)
"""Measured row counts. Other counts use the next larger bucket, larger ones the last.

Recorded programs (execution.step_programs) rely on one form for all of more than 32.
"""

SECOND_FORM_GAIN = 0.05
HOPELESS, HOPELESS_FROM = 3.0, 16
LOW_HEIGHT, MEASURED_WEIGHTS = 32, 1 << 20
COLD_BYTES, MAX_COPIES = 32 << 20, 16
ENOUGH_S = 0.002
Q4_0_BYTES = 18
ERROR_CHARS = 200
WIDER_COSTS = {"bf16": 1.25, "float32": 1.5}
"""Factors on the costs of wide forms, which take two or four times the memory: measurements have noise."""
MODES = ("auto", "bf16", "float32", "int8")


class WeightForm(Protocol):
    """A way to hold a matrix (N, K) and multiply by it: (R, K) -> (R, N), float32 or bfloat16.

    A new form is a class like DenseWeight, a line in BUILDERS and a name in `possible_forms`.
    """

    num_bytes: int
    input_dtype: torch.dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class RowForms:
    """The forms of one matrix. `by_rows[r]` serves r rows, the last entry any larger number."""

    by_rows: tuple[WeightForm, ...]
    num_outputs: int

    @property
    def num_bytes(self) -> int:
        return sum(form.num_bytes for form in {id(form): form for form in self.by_rows}.values())


def byte_weight(matrix: StoredMatrix, device: torch.device, is_invariant: bool) -> WeightForm:
    """Build an eight-bit weight for bfloat16 activations on CUDA."""
    from engine.quantization.byte_weight import ByteWeight  # needs Triton, which CPU installations lack

    values, scale = quantize_rows(matrix)
    return ByteWeight(values.to(device), scale.to(device), torch.bfloat16, is_invariant)


BUILDERS: dict[str, Callable[[StoredMatrix, torch.device], WeightForm]] = {
    "int4": lambda matrix, device: Int4Weight(matrix.to_four_bit_groups()),
    "panels": lambda matrix, device: PanelWeight.of_matrix(matrix),
    "panels_amx": lambda matrix, device: PanelWeight.of_matrix(matrix, may_take_tiles=True),
    "int8_panels": lambda matrix, device: PanelWeight.eight_bit(*quantize_groups(matrix)),
    "int8": lambda matrix, device: Int8Weight(*quantize_rows(matrix)),
    "int8_packed": lambda matrix, device: Int8PackedWeight(*quantize_rows(matrix)),
    "bf16": lambda matrix, device: DenseWeight(matrix.to_dtype(torch.bfloat16).to(device)),
    "float32": lambda matrix, device: DenseWeight(matrix.to_dtype(torch.float32).to(device)),
    "byte": lambda matrix, device: byte_weight(matrix, device, is_invariant=False),
    "byte_invariant": lambda matrix, device: byte_weight(matrix, device, is_invariant=True),
}
"""Name -> builder. The integer forms are for CPUs, "byte" and "byte_invariant" for CUDA.

"int8_panels" is for comparison (benchmarks/quality.py).
"""

OWN_FORMS = ("panels", "panels_amx", "int8_panels")
ROW_INDEPENDENT = ("int8", "int8_packed", "int4", "panels", "int8_panels")


def possible_forms(shape: tuple[int, int], four_bit: bool) -> set[str]:
    """Return the names of the forms to try for a matrix of this shape; torch may lack operators for some."""
    if PanelWeight.fits(shape):
        return {"panels_amx" if has_tiles() else "panels"}
    integers = {"int4": four_bit and Int4Weight.fits(shape), "int8": True, "int8_packed": Int8PackedWeight.is_exact()}
    return {"bf16", "float32"} | {name for name, is_possible in integers.items() if is_possible}


class WeightScheme:
    """A scheme that chooses and builds forms. `weights`: "auto", "bf16", "float32" or, on CUDA, "int8".

    `batch_invariant`: use one form for all row counts. Create it where torch has the number of threads that will run
    the model; several threads may call `build`.
    """

    def __init__(self, weights: str, device: torch.device, batch_invariant: bool) -> None:
        if weights not in MODES:
            raise ModelLoadError(f"weights must be one of {', '.join(MODES)}, got {weights!r}")
        if weights == "int8" and device.type == "cpu":
            raise ModelLoadError(
                "weights 'int8' need a CUDA device: use 'auto', which takes eight bits on a CPU where they are fastest"
            )
        self._fixed = "bf16" if weights == "auto" and device.type != "cpu" else weights
        if weights == "int8":
            self._fixed = "byte_invariant" if batch_invariant else "byte"
        self._device = device
        self._batch_invariant = batch_invariant
        self._num_threads = torch.get_num_threads()
        self._measuring = Lock()
        self.choices: dict[tuple[tuple[int, int], bool], tuple[str, ...]] = {}
        self._num_built: Counter[tuple[str, ...]] = Counter()
        self._panel_bytes: dict[tuple[str, int, str], int] = {}
        """Bytes of PANEL outputs by form, inputs and packed type."""

    @property
    def is_fixed(self) -> bool:
        """True if every weight is held in the dtype of the embedding table."""
        return self._fixed in ("bf16", "float32")

    @property
    def uses_own_kernels(self) -> bool:
        """True if every product of the weights built so far is our own kernel; torch's threads then have no work."""
        return bool(self.choices) and all(name in OWN_FORMS for names in self.choices.values() for name in names)

    @property
    def table_dtype(self) -> torch.dtype:
        """The dtype of the embedding table."""
        return torch.float32 if self._fixed == "float32" else torch.bfloat16

    @property
    def activation_dtype(self) -> torch.dtype:
        """The dtype of the residual stream and of attention: float32 on a CPU, where it costs less than conversions."""
        return torch.float32 if self._device.type == "cpu" else self.table_dtype

    def summary(self) -> str:
        """Say how many of the matrices built so far have which forms, such as "120 as panels, 1 as bf16"."""
        return ", ".join(
            f"{count} as {' or '.join(names)}{' by rows' if len(names) > 1 else ''}"
            for names, count in self._num_built.most_common()
        )

    def keeps_stored(self, table: StoredMatrix) -> bool:
        """Return True if the embedding table stays as stored: on a CPU, if that is smaller and no weight shares it."""
        return (
            self._device.type == "cpu"
            and not self.is_fixed
            and table.num_bytes < prod(table.shape) * self.table_dtype.itemsize
        )

    def share(self, table: torch.Tensor) -> RowForms:
        """Use the embedding table as a weight; only when `is_fixed`. table: (V, E)."""
        return RowForms((DenseWeight(table),) * 2, table.shape[0])

    def build(self, matrix: StoredMatrix) -> RowForms:
        """Convert a stored matrix to the forms that are fastest for its shape on this machine."""
        with self._measuring:
            names = self._choose(matrix)
            self._num_built[tuple(sorted(set(names)))] += 1
        forms = {name: BUILDERS[name](matrix, self._device) for name in dict.fromkeys(names)}
        by_bucket = dict(zip(ROW_BUCKETS, (forms[name] for name in names), strict=True))
        buckets = (next(bucket for bucket in ROW_BUCKETS if bucket >= rows) for rows in range(1, ROW_BUCKETS[-1] + 1))
        return RowForms((by_bucket[1], *(by_bucket[bucket] for bucket in buckets)), matrix.shape[0])

    def held_bytes(self, matrix: StoredMatrix) -> int:
        """Return what the forms that `build` makes of a matrix take. The matrix may be an outline.

        Forms take as much for each PANEL outputs, so PANEL outputs of zeros are built and counted.
        """
        num_bytes = 0
        for name in dict.fromkeys(self._choose(matrix)):
            runs, grain = (matrix.runs(), PANEL) if name in OWN_FORMS else ([matrix], 1)
            if any(run.shape[0] % grain for run in runs[:-1]):  # then all are held in eight bits
                runs = [StoredMatrix.outline("F32", matrix.shape, 4 * matrix.shape[1])]
            for run in runs:
                num_outputs = -(-run.shape[0] // grain) * grain
                num_bytes += self._bytes_of_panel(name, run) * num_outputs // PANEL
        return num_bytes

    def _bytes_of_panel(self, name: str, run: StoredMatrix) -> int:
        part, num_inputs = run.parts[0], run.shape[1]
        key = name, num_inputs, part.packed_type
        if key not in self._panel_bytes:
            sample = StoredMatrix.from_float(torch.zeros(PANEL, num_inputs))
            if part.packed_type:
                blocks = torch.zeros(PANEL, part.data.shape[1], dtype=torch.uint8)
                sample = StoredMatrix.from_blocks(part.type, blocks, sample.shape)
            self._panel_bytes[key] = BUILDERS[name](sample, self._device).num_bytes
        return self._panel_bytes[key]

    def _choose(self, matrix: StoredMatrix) -> tuple[str, ...]:
        if self._fixed != "auto":
            return (self._fixed,) * len(ROW_BUCKETS)
        key = (matrix.shape, matrix.is_four_bit and Int4Weight.fits(matrix.shape))
        if key not in self.choices and len(only := possible_forms(*key)) == 1:
            (name,) = only
            name = "panels" if name == "panels_amx" and self._batch_invariant else name
            self.choices[key] = (name,) * len(ROW_BUCKETS)
        if key not in self.choices:
            costs = measure(*key, self._num_threads)
            if self._batch_invariant:
                costs = {name: cost for name, cost in costs.items() if name in ROW_INDEPENDENT}
                if not costs:
                    raise ModelLoadError(
                        "batch_invariant needs weights of four or eight bits, which this torch cannot multiply: "
                        "unset it"
                    )
            costs = {name: [cost * WIDER_COSTS.get(name, 1.0) for cost in by_rows] for name, by_rows in costs.items()}
            self.choices[key] = pick(costs, max_forms=1 if self._batch_invariant else 2)
            described = ", ".join(
                f"{rows}: {name} {costs[name][i]:.0f}" for i, (rows, name) in _counted(self.choices[key])
            )
            logger.info(
                "weight %d x %d, %s; microseconds by rows: %s", *key[0], "4-bit" if key[1] else "wider", described
            )
        return self.choices[key]


def _counted(names: tuple[str, ...]) -> list[tuple[int, tuple[int, str]]]:
    return list(enumerate(zip(ROW_BUCKETS, names, strict=True)))


def pick(costs: dict[str, list[float]], max_forms: int) -> tuple[str, ...]:
    """Choose a form per row bucket from measured costs, using at most `max_forms`, since each takes memory.

    A further form must lower the sum of costs, each relative to its bucket's best, by SECOND_FORM_GAIN.
    """
    best = [min(cost[i] for cost in costs.values()) for i in range(len(ROW_BUCKETS))]

    def total(names: tuple[str, ...]) -> float:
        return sum(min(costs[name][i] for name in names) / best[i] for i in range(len(ROW_BUCKETS)))

    chosen: tuple[str, ...] = min(((name,) for name in costs), key=total)
    for count in range(2, max_forms + 1):
        better = min(combinations(costs, count), key=total, default=chosen)
        if total(better) < total(chosen) * (1 - SECOND_FORM_GAIN):
            chosen = better
    return tuple(min((costs[name][i], name) for name in chosen)[1] for i in range(len(ROW_BUCKETS)))


def measure(shape: tuple[int, int], four_bit: bool, num_threads: int) -> dict[str, list[float]]:
    """Estimate the cost of every form that works, on random weights of four or eight bits: microseconds per row bucket.

    Measures processor time of one thread, which other programs do not distort. A second matrix of few outputs separates
    the fixed cost (quantising rows, calls) from the cost per output, which `num_threads` threads share. Copies at other
    addresses keep the weights out of the caches, as in a model. A form that is hopeless at one of the larger buckets is
    not tried at the next (its cost there is infinite).
    """
    num_outputs, num_inputs = shape
    height = min(num_outputs, max(2 * LOW_HEIGHT, MEASURED_WEIGHTS // num_inputs // LOW_HEIGHT * LOW_HEIGHT))
    with KERNEL_THREADS.single_threaded():
        tried = _random_matrix((LOW_HEIGHT, num_inputs), four_bit)
        names = [name for name in sorted(possible_forms(shape, four_bit)) if _works(name, tried)]
        low, full = (_copies(_random_matrix((rows, num_inputs), four_bit), names) for rows in (LOW_HEIGHT, height))
        costs: dict[str, list[float]] = {name: [] for name in full}
        for bucket, rows in enumerate(ROW_BUCKETS):
            x = torch.randn(rows, num_inputs)
            best = min(cost[bucket - 1] for cost in costs.values()) if rows > HOPELESS_FROM else float("inf")
            for name, cost in costs.items():
                if cost[-1:] > [HOPELESS * best]:
                    cost.append(float("inf"))
                    continue
                per_output = (_time(full[name], x) - (fixed := _time(low[name][:2], x))) / max(height - LOW_HEIGHT, 1)
                cost.append(max(fixed, 0.0) + max(per_output, 0.0) * num_outputs / num_threads)
    return costs


def _random_matrix(shape: tuple[int, int], four_bit: bool) -> StoredMatrix:
    if not four_bit:
        return StoredMatrix.from_float(torch.rand(shape).sub_(0.5))
    # Bytes below 60 make the float16 scales among them finite and below 1.
    data = torch.randint(0, 60, (shape[0], shape[1] // GROUP_SIZE * Q4_0_BYTES), dtype=torch.uint8)
    return StoredMatrix.from_blocks("Q4_0", data, shape)


def _copies(matrix: StoredMatrix, names: list[str]) -> dict[str, list[WeightForm]]:
    """Build each form of a matrix and several copies of it at other addresses."""
    forms = {name: BUILDERS[name](matrix, torch.device("cpu")) for name in names}
    return {
        name: [form] + [copy.deepcopy(form) for _ in range(min(MAX_COPIES, COLD_BYTES // form.num_bytes))]
        for name, form in forms.items()
    }


def _works(name: str, matrix: StoredMatrix) -> bool:
    """Return True if a form can be built here and multiplies few and many rows; otherwise log why not."""
    try:
        form = BUILDERS[name](matrix, torch.device("cpu"))
        for rows in (ROW_BUCKETS[0], ROW_BUCKETS[-1]):
            form(torch.zeros(rows, matrix.shape[1]))
    except (RuntimeError, AttributeError) as error:  # this torch refuses the operator or lacks it
        logger.warning("weights are not held as %s: %s", name, " ".join(str(error).split())[:ERROR_CHARS])
        return False
    return True


def _time(copies: list[WeightForm], x: torch.Tensor) -> float:
    """Return microseconds of processor time per call, the best of a few rounds; many rows need only one copy."""
    used = copies if x.shape[0] <= 8 else copies[:1]
    copies[0](x)
    fastest = float("inf")
    for _ in range(3):
        start = thread_time()
        for form in used:
            form(x)
        fastest = min(fastest, (thread_time() - start) / len(used))
        if fastest > ENOUGH_S:
            break
    return fastest * 1e6
