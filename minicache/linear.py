"""y = x Wᵀ + b, as fast as the machine does it for few rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Linear = Callable[[Tensor], Tensor]
"""`(T, inputs)` → `(T, outputs)`."""

_PACKED_FOR_ROWS = 64
"""The row count that the packed layout is chosen for; it serves 1 to 512 rows equally well."""


class DenseLinear:
    """The library call on the weight as it is: `weight: (outputs, inputs)`, `bias: (outputs,)`."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, inputs)` → `(T, outputs)`."""
        return F.linear(x, self.weight, self.bias)


class PackedLinear:
    """The same on a weight stored once in the order in which oneDNN's matrix kernels read it.

    `F.linear` reorders a bfloat16 weight on every call, which for few rows costs more than the
    product: decode gets 1.7 times faster. The two operators are those that inductor uses.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Copies `weight`; the caller may drop it."""
        self._weight = _onednn()._reorder_linear_weight(weight, _PACKED_FOR_ROWS)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, inputs)` → `(T, outputs)`."""
        return _onednn()._linear_pointwise(x, self._weight, self._bias, "none", [], "")


def packing_helps(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `PackedLinear` runs here and is faster. In float32 it gains nothing at one row."""
    return (
        device.type == "cpu"
        and dtype is torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and hasattr(_onednn(), "_reorder_linear_weight")
        and hasattr(_onednn(), "_linear_pointwise")
    )


def cpu_has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 itself: AVX512-BF16 or AMX."""
    cpu: Any = torch.cpu
    return cpu._is_avx512_bf16_supported() or cpu._is_amx_tile_supported()


def _onednn() -> Any:
    return torch.ops.mkldnn
