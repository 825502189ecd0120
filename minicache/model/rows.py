"""How a function that treats every row alike is applied: to all rows, or in blocks of one size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

RowFunction = Callable[..., tuple[Tensor, ...]]
"""Tensors of T rows (or None) → tensors of T rows; row i depends on row i alone, up to rounding."""


class Rows(Protocol):
    """A way to apply a row function."""

    def __call__(self, function: RowFunction, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        """`function(*tensors)`, all with the same number of rows."""
        ...


class WholeRows:
    """All rows in one call: the fastest. A row's last bits depend on how many rows there are."""

    def __call__(self, function: RowFunction, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        """`function(*tensors)`."""
        return function(*tensors)


class FixedRows:
    """Always `size` rows in one call, filled up with zeros: a row's bits depend on that row alone.

    Libraries choose the order of a sum by the shape of the product. One shape means one order.
    """

    def __init__(self, size: int = 64) -> None:
        self.size = size

    def __call__(self, function: RowFunction, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        """`function` on blocks of rows, put together again."""
        count = next(tensor.shape[0] for tensor in tensors if tensor is not None)
        blocks = [
            function(*(self._block(tensor, begin) for tensor in tensors))
            for begin in range(0, max(count, 1), self.size)
        ]
        return tuple(torch.cat(parts)[:count] for parts in zip(*blocks, strict=True))

    def _block(self, tensor: Tensor | None, begin: int) -> Tensor | None:
        if tensor is None:
            return None
        part = tensor[begin : begin + self.size]
        block = tensor.new_zeros(self.size, *tensor.shape[1:])
        block[: part.shape[0]] = part
        return block
