"""Inputs that are the same on every machine, in every process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from minicache.lab.cases.case import Inputs


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers, the same on every machine."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def fixed(**inputs: Any) -> Callable[[], Inputs]:
    """Inputs made afresh from plain lists: a list becomes a float32 tensor."""
    return lambda: {
        name: torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value
        for name, value in inputs.items()
    }
