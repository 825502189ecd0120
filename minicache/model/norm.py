"""RMS norm: every row is divided by its root mean square. Zhang and Sennrich 2019."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class RmsNorm:
    """x / √(mean(x²) + eps) · weight, over the last dimension, in float32.

    With n numbers in a row, mean(x²) + eps is (‖x‖² + n · eps) / n, so its root is the hypotenuse
    of ‖x‖ and √(n · eps) over √n, which the weight takes in. That is three passes over the rows
    where the formula, term by term, takes six.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        """`weight: (..., n)`, whose leading dimensions are those that rows have behind T."""
        size = weight.shape[-1]
        self.weight = weight
        self.eps = eps
        self._scaled = weight.float() * math.sqrt(size)
        self._least = torch.full((), math.sqrt(size * eps), device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        """`(T, ..., n)` → the same shape and dtype."""
        wide = x.float()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        return (wide / torch.hypot(length, self._least) * self._scaled).to(x.dtype)
