"""Values as short text: small ones whole, large ones by shape, dtype and range."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SMALL = 64
"""A tensor of at most this many elements is written out."""


def is_tensor(value: Any) -> bool:
    """Whether it is a torch tensor; never imports torch."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def size(value: Any) -> int:
    """How many numbers a value holds: what 'small' means for a failing case."""
    if is_tensor(value):
        return int(value.numel())
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(size(v) for v in value.values())
    if isinstance(value, Sequence):
        return sum(size(v) for v in value)
    return 1


def dtype_name(tensor: Any) -> str:
    """`torch.float32` → `float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def describe(value: Any) -> str:
    """One value for a reader: `float32 (2, 3)` and its numbers, or Python's own text."""
    if is_tensor(value):
        return _tensor_text(value)
    if isinstance(value, float):
        return number(value)
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + " …"


def number(value: Any) -> str:
    """At most five significant digits; integers and booleans as they are."""
    if isinstance(value, bool | int) or not isinstance(value, float):
        return str(value)
    if math.isnan(value) or math.isinf(value):
        return str(value)
    return f"{value:.5g}"


def _tensor_text(tensor: Any) -> str:
    head = f"{dtype_name(tensor)} {tuple(tensor.shape)}"
    if tensor.numel() == 0:
        return f"{head}, empty"
    if tensor.numel() <= SMALL:
        return f"{head}\n{_rows(tensor.tolist())}"
    finite = tensor.double()[tensor.double().isfinite()]
    odd = tensor.numel() - finite.numel()
    text = f"{head}, {odd:,} of {tensor.numel():,} are inf or NaN" if odd else head
    if finite.numel():
        text += f", from {number(float(finite.min()))} to {number(float(finite.max()))}"
    return text


def _rows(values: Any) -> str:
    """Nested lists, the innermost on a line each, all columns of one width."""
    width = max(len(number(value)) for value in _flat(values))

    def text(part: Any, indent: str) -> str:
        if not isinstance(part, list):
            return number(part).rjust(width)
        if isinstance(part[0], list):
            return "[" + f"\n{indent} ".join(text(row, indent + " ") for row in part) + "]"
        return "[" + "  ".join(text(value, indent) for value in part) + "]"

    return text(values, "")


def _flat(values: Any) -> Iterator[Any]:
    """The numbers of nested lists."""
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    else:
        yield values
