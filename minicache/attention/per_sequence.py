"""Attention written for one plain sequence, used on pages: a lesson's function drives the model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minicache.attention.gather import gather, plan_group
from minicache.protocols import AttentionBatch

SequenceAttention = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""`q: (T, H, D)`, `k, v: (S, K, D)`, scale → `(T, H, D)`, causal and aligned at the end."""


class PerSequence:
    """Implements `protocols.PagedAttention` by calling `attention` for one sequence at a time."""

    graph_safe = False

    def __init__(self, attention: SequenceAttention) -> None:
        self.attention = attention

    def __call__(
        self, q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, scale: float
    ) -> Tensor:
        """`q: (T, H, D)`, pages `(P, K, N, D)` → `(T, H, D)`."""
        starts = batch.host_query_starts or tuple(batch.query_starts.tolist())
        lengths = batch.host_lengths or tuple(batch.lengths.tolist())
        outputs: list[Tensor] = []
        for b in range(len(lengths)):
            group = plan_group([b], lengths, batch.page_table, k_pages.shape)
            k, v = (gather(x, group)[0].transpose(0, 1) for x in (k_pages, v_pages))  # (S, K, D)
            outputs.append(self.attention(q[starts[b] : starts[b + 1]], k, v, scale))
        return torch.cat(outputs)
