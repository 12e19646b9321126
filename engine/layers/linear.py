"""A linear layer that holds its weight in the one or two forms that are fastest for its row counts."""

from __future__ import annotations

import torch

from engine.kernels.cpu import operators
from engine.layers.adapters import StepAdapters
from engine.quantization.scheme import RowForms


class Linear:
    """A linear layer: y = x @ weight.T + bias. The number of rows alone selects the form."""

    def __init__(self, forms: RowForms, bias: torch.Tensor | None = None, place: int | None = None) -> None:
        """`place`: its number among the projections that adapters may change; None: they do not change it."""
        self._by_rows = forms.by_rows
        self._most = len(forms.by_rows) - 1
        self._bias = bias
        self._place = place
        self.num_outputs = forms.num_outputs
        self.num_bytes = forms.num_bytes

    def __call__(self, x: torch.Tensor, adapters: StepAdapters | None = None) -> torch.Tensor:
        """x: (R, K)  ->  (R, N), float32 or bfloat16 as the form gives it. `adapters`: of the rows, if any has one."""
        y = self._multiply(x)
        return y if adapters is None or self._place is None else adapters.add(self._place, x, y)

    def _multiply(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        form = self._by_rows[rows if rows < self._most else self._most]
        if self._bias is None:
            return form(x)
        if not x.is_cpu:
            return form.multiply_add(x, self._bias)
        y = form(x)
        is_plain = y.is_cpu and y.dtype is torch.float32 and self._bias.dtype is torch.float32
        return operators.add_bias(y, self._bias) if is_plain else y + self._bias

    def input_dtype(self, num_rows: int) -> torch.dtype:
        """Return the dtype in which so many rows are multiplied; other dtypes are converted first."""
        return self._by_rows[min(num_rows, self._most)].input_dtype
