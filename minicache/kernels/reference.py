"""The readable truth beside the kernels: one sequence, one head at a time, in plain torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class AttentionResult(NamedTuple):
    """What an attention kernel returns."""

    output: Tensor
    """(T, H, D), in the dtype of q."""
    lse: Tensor
    """(T, H) float32: log-sum-exp of the scaled scores, natural logarithm; -inf where no key was
    seen.
    """


def gather(pages: Tensor, table_row: Tensor, length: int) -> Tensor:
    """The first `length` tokens of one sequence out of `pages: (P, K, N, D)`: (K, length, D)."""
    num_pages = -(-length // pages.shape[2])
    found = pages[table_row[:num_pages].long()]  # (num_pages, K, N, D)
    joined = found.transpose(0, 1).reshape(
        pages.shape[1], -1, pages.shape[3]
    )  # (K, num_pages * N, D)
    return joined[:, :length]


def attend(
    q: Tensor, keys: Tensor, values: Tensor, scale: float, soft_cap: float = 0.0, window: int = 0
) -> tuple[Tensor, Tensor]:
    """Causal attention of `q: (T, H, D)`, the last T of S tokens, over `keys, values: (K, S, D)`.

    Order: scale, soft cap (`cap * tanh(score / cap)`), mask. Key j is visible to position i if
    `i - window < j <= i`. Returns output (T, H, D) and lse (T, H) in the dtype of q.
    """
    tokens, heads, _ = q.shape
    group = heads // keys.shape[0]
    keys, values = keys.repeat_interleave(group, 0), values.repeat_interleave(group, 0)
    scores = torch.einsum("thd,hsd->ths", q, keys) * scale
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    key = torch.arange(keys.shape[1], device=q.device)
    position = torch.arange(tokens, device=q.device)[:, None] + keys.shape[1] - tokens
    visible = key <= position
    if window:
        visible &= key > position - window
    scores = scores.masked_fill(~visible[:, None, :], -math.inf)
    lse = scores.logsumexp(-1)
    weights = torch.exp(scores - torch.where(lse == -math.inf, 0.0, lse)[..., None])
    return torch.einsum("ths,hsd->thd", weights, values), lse


def paged_attention_reference(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    query_starts: Sequence[int],
    lengths: Sequence[int],
    *,
    scale: float | None = None,
    soft_cap: float = 0.0,
    window: int = 0,
    dtype: torch.dtype = torch.float64,
) -> AttentionResult:
    """What both kernels compute, sequence by sequence in `dtype`; the output is in `dtype` too.

    `q: (T, H, D)`; pages `(P, K, N, D)`; `page_table: (B, C)`. Rows
    `[query_starts[b], query_starts[b + 1])` are the last tokens of sequence b.
    """
    factor = float(q.shape[-1]) ** -0.5 if scale is None else scale
    output = torch.zeros(q.shape, dtype=dtype, device=q.device)
    lse = torch.full(q.shape[:2], -math.inf, dtype=dtype, device=q.device)
    for b, length in enumerate(lengths):
        rows = slice(query_starts[b], query_starts[b + 1])
        if length == 0 or rows.start == rows.stop:
            continue
        keys = gather(k_pages, page_table[b], length).to(dtype)
        values = gather(v_pages, page_table[b], length).to(dtype)
        output[rows], lse[rows] = attend(q[rows].to(dtype), keys, values, factor, soft_cap, window)
    return AttentionResult(output, lse.float())
