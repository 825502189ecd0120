"""Attention as the formula says it: every score at once. The truth that faster ways are held to."""

from __future__ import annotations

import torch
from torch import Tensor


def naive_attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """Causal attention of the last T tokens of a sequence of S, softmax(q kᵀ · scale) v.

    `q: (T, H, D)`, `k, v: (S, K, D)` → `(T, H, D)`. Query head h reads kv head h // (H // K).
    The mask is aligned at the end: row i stands at position S - T + i and sees the keys up to it.
    `scale` is 1/√D unless given. Raises `ValueError` for shapes that do not fit. Vaswani et al.
    2017, "Attention is all you need"; grouped heads: Ainslie et al. 2023, "GQA".
    """
    check_shapes(q, k, v)
    queries, keys = q.shape[0], k.shape[0]
    grouped = group_heads(q, k.shape[1])  # (T, K, G, D)
    scores = torch.einsum("tkgd,skd->kgts", grouped, k).float() * softmax_scale(q, scale)
    visible = causal_mask(queries, keys, device=q.device)  # (T, S)
    weights = stable_softmax(scores.masked_fill(~visible, -torch.inf))  # (K, G, T, S)
    mixed = torch.einsum("kgts,skd->tkgd", weights.to(v.dtype), v)
    return mixed.reshape(q.shape)  # (T, H, D)


def causal_mask(queries: int, keys: int, *, device: torch.device | None = None) -> Tensor:
    """Which keys each query sees, `(T, S)` bool: the last sees all, the one before misses one."""
    positions = torch.arange(keys - queries, keys, device=device)  # (T,)
    return torch.arange(keys, device=device) <= positions[:, None]  # (T, S)


def stable_softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension that cannot overflow: the largest exponent is exp(0) = 1."""
    weights = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return weights / weights.sum(dim=-1, keepdim=True)


def group_heads(q: Tensor, kv_heads: int) -> Tensor:
    """`(T, H, D)` → `(T, K, H // K, D)`, a view: query heads that share a kv head, side by side."""
    return q.view(q.shape[0], kv_heads, -1, q.shape[2])


def softmax_scale(q: Tensor, scale: float | None) -> float:
    """The factor on the scores: 1/√D, so that their variance does not grow with D."""
    return q.shape[-1] ** -0.5 if scale is None else scale


def check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise `ValueError` where `q: (T, H, D)` and `k, v: (S, K, D)` do not fit together."""
    if k.shape != v.shape or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q is {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}, but they must be "
            "(T, H, D), (S, K, D) and (S, K, D) with one D."
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{q.shape[1]} query heads cannot share {k.shape[1]} kv heads evenly; the first must "
            "be a multiple of the second."
        )
    if q.shape[0] > k.shape[0]:
        raise ValueError(
            f"There are {q.shape[0]} queries but {k.shape[0]} keys; queries are the last tokens of "
            "the sequence, so their own keys must be among the keys."
        )
