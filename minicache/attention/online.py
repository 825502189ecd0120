"""Attention one tile of keys at a time, with a running maximum and a running sum.

The scores of one tile are all that exists at any moment, so memory does not grow with the context.
This is the loop of FlashAttention (Dao et al. 2022) without its GPU.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from minicache.attention.naive import check_shapes, group_heads, softmax_scale
from minicache.attention.partial import Partial


class Running(NamedTuple):
    """What is known after some tiles: the largest score, and two sums relative to it."""

    peak: Tensor
    """(K, G, T): -inf before the first visible key."""
    total: Tensor
    """(K, G, T): sum of exp(score - peak)."""
    acc: Tensor
    """(K, G, T, D): sum of exp(score - peak) · value."""


def online_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, tile: int = 64
) -> Tensor:
    """`naive_attention` in tiles of `tile` keys: same arguments, same result to rounding."""
    check_shapes(q, k, v)
    first = k.shape[0] - q.shape[0]
    return online_partial(q, k, v, first, scale, tile).output.to(q.dtype)


def online_partial(
    q: Tensor, k: Tensor, v: Tensor, first: int, scale: float | None = None, tile: int = 64
) -> Partial:
    """Attention over the keys given, which need not be all the keys there are.

    `q: (T, H, D)`, `k, v: (S, K, D)`; query i sees keys j <= first + i, so `first` may lie outside
    [0, S): at S or beyond all is visible, below -T nothing is. → output `(T, H, D)`, lse `(T, H)`.
    """
    queries = group_heads(q, k.shape[1]).permute(1, 2, 0, 3).float()  # (K, G, T, D)
    queries = queries * softmax_scale(q, scale)
    limit = first + torch.arange(q.shape[0], device=q.device)  # (T,) the last key each query sees
    running = start(queries)
    for begin in range(0, k.shape[0], tile):
        keys, values = (x[begin : begin + tile].float().transpose(0, 1) for x in (k, v))
        running = step(running, queries, keys, values, limit - begin)
    return _token_major(finish(running))


def start(queries: Tensor) -> Running:
    """No tile seen yet. `queries: (K, G, T, D)` float32."""
    zeros = torch.zeros_like(queries[..., 0])
    return Running(torch.full_like(zeros, -torch.inf), zeros, torch.zeros_like(queries))


def step(running: Running, queries: Tensor, keys: Tensor, values: Tensor, limit: Tensor) -> Running:
    """Take in one tile. `keys, values: (K, N, D)`; query t sees the tile's keys j <= limit[t].

    When the maximum grows, what was summed so far shrinks by exp(old - new).
    """
    scores = queries @ keys[:, None].transpose(-1, -2)  # (K, G, T, N)
    hidden = torch.arange(keys.shape[1], device=keys.device) > limit[:, None]  # (T, N)
    scores = scores.masked_fill(hidden, -torch.inf)
    peak = torch.maximum(running.peak, scores.amax(dim=-1))
    shift = peak.masked_fill(peak == -torch.inf, 0.0)  # nothing visible yet: keep exp(-inf) = 0
    shrink = (running.peak - shift).exp()
    weights = (scores - shift[..., None]).exp()
    total = running.total * shrink + weights.sum(dim=-1)
    return Running(peak, total, running.acc * shrink[..., None] + weights @ values[:, None])


def finish(running: Running) -> Partial:
    """Divide once, at the end. Queries that saw no key get output 0 and lse -inf."""
    share = torch.where(running.total > 0, 1 / running.total, 0.0)
    return Partial(running.acc * share[..., None], running.peak + running.total.log())


def _token_major(part: Partial) -> Partial:
    """(K, G, T, D) and (K, G, T) → (T, H, D) and (T, H)."""
    return Partial(
        part.output.permute(2, 0, 1, 3).flatten(1, 2), part.lse.permute(2, 0, 1).flatten(1, 2)
    )
