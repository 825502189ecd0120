"""Scores alone: the engine has them only inside its attention."""

from __future__ import annotations

import torch
from torch import Tensor


def attention_scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """`q: (T, H, D)`, `k: (S, H, D)` → `(H, T, S)`: scale · (query · key), for each head."""
    return torch.einsum("thd,shd->hts", q, k) * scale
