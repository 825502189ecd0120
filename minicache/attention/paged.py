"""Causal attention of a ragged batch over pages, in torch: the engine's attention on a CPU."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch
from torch import Tensor

from minicache.attention.fused import fused_partial
from minicache.attention.gather import GatherGroup, gather, group_lengths, plan_group
from minicache.attention.naive import group_heads
from minicache.attention.partial import Partial, merge
from minicache.protocols import AttentionBatch


class BatchPlan(NamedTuple):
    """What all layers of a step share: who is attended to together, and where their tokens lie."""

    batch: AttentionBatch
    decodes: list[tuple[Tensor | slice, GatherGroup]]
    """Groups of sequences with one query each, with the rows of those queries."""
    chunks: list[tuple[slice, GatherGroup]]
    """Single sequences with several queries, with their rows."""


class TorchPagedAttention:
    """Implements `protocols.PagedAttention`: gather pages, then call the library's attention.

    The plans of the last two batches are kept: every layer of a step asks with the same decodes and
    the same chunks, and one object may serve both.
    """

    graph_safe = False

    def __init__(self) -> None:
        self._plans: deque[BatchPlan] = deque(maxlen=2)

    def __call__(
        self, q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, scale: float
    ) -> Tensor:
        """`q: (T, H, D)`, pages `(P, K, N, D)` → `(T, H, D)`."""
        plan = self._planned(batch, k_pages.shape)
        parts: list[tuple[Tensor | slice, Tensor]] = []
        for rows, group in plan.decodes:
            keys, values = gather(k_pages, group), gather(v_pages, group)
            parts.append((rows, decode_attention(q[rows], keys, values, group.mask, scale)))
        for rows, group in plan.chunks:
            keys, values = gather(k_pages, group)[0], gather(v_pages, group)[0]
            parts.append((rows, chunk_attention(q[rows], keys, values, scale)))
        if len(parts) == 1:  # then its rows are all the rows, in their order
            return parts[0][1]
        output = torch.empty_like(q)
        for rows, part in parts:
            output[rows] = part
        return output

    def _planned(self, batch: AttentionBatch, shape: torch.Size) -> BatchPlan:
        for plan in self._plans:
            if plan.batch is batch:
                return plan
        self._plans.append(plan_batch(batch, shape))
        return self._plans[-1]


def plan_batch(batch: AttentionBatch, shape: torch.Size) -> BatchPlan:
    """Group the batch's decodes by length; each chunk stays alone. `shape`: `(P, K, N, D)`."""
    starts = batch.host_query_starts or tuple(batch.query_starts.tolist())
    lengths = batch.host_lengths or tuple(batch.lengths.tolist())
    single = [b for b in range(len(lengths)) if starts[b + 1] - starts[b] == 1]
    several = [b for b in range(len(lengths)) if starts[b + 1] - starts[b] > 1]
    decodes: list[tuple[Tensor | slice, GatherGroup]] = []
    for group in group_lengths([lengths[b] for b in single]):
        members = sorted(single[i] for i in group)
        rows = _rows([starts[b] for b in members], batch.page_table.device)
        decodes.append((rows, plan_group(members, lengths, batch.page_table, shape)))
    chunks = [
        (slice(starts[b], starts[b + 1]), plan_group([b], lengths, batch.page_table, shape))
        for b in several
    ]
    return BatchPlan(batch, decodes, chunks)


def _rows(numbers: list[int], device: torch.device) -> Tensor | slice:
    """Where it can be a slice, nothing is copied to take those rows out or to put them back."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return slice(numbers[0], numbers[-1] + 1)
    return torch.tensor(numbers, device=device)


def decode_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """One query a sequence. `q: (M, H, D)`, `k, v: (M, K, S, D)` → `(M, H, D)`.

    The query heads of a kv head are laid where queries are: K and V are read once for all of them.
    """
    queries = group_heads(q, k.shape[1])  # (M, K, G, D)
    mask = None if mask is None else mask.to(q.dtype)
    return fused_partial(queries, k, v, scale, mask=mask).output.reshape(q.shape)


def chunk_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """The last T tokens of one sequence. `q: (T, H, D)`, `k, v: (K, S, D)` → `(T, H, D)`.

    Past keys are visible to the whole chunk; among its own the mask is a plain triangle. The two
    parts need no T × S mask and join by their log-sum-exp.
    """
    past = k.shape[1] - q.shape[0]
    queries = group_heads(q, k.shape[0]).permute(1, 2, 0, 3)  # (K, G, T, D)
    heads = (*queries.shape[:2], -1, -1)  # the query heads of a group read one copy of their keys
    keys, values = k[:, None].expand(heads), v[:, None].expand(heads)  # (K, G, S, D)
    part = fused_partial(queries, keys[:, :, past:], values[:, :, past:], scale, causal=True)
    if past:
        part = merge(_past(queries, k[:, :past], v[:, :past], scale), part)
    return part.output.permute(2, 0, 1, 3).reshape(q.shape).to(q.dtype)


def _past(queries: Tensor, k: Tensor, v: Tensor, scale: float) -> Partial:
    """Attention without a mask: then the heads of a group can be more rows of one query.

    The library lays K and V out anew for every head it is given: so it does once a group.
    `queries: (K, G, T, D)`, `k, v: (K, S, D)`.
    """
    part = fused_partial(queries.flatten(1, 2)[None], k[None], v[None], scale)  # (1, K, G · T, D)
    return Partial(part.output.view_as(queries), part.lse.view(queries.shape[:3]))
