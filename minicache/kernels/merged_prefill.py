"""Past and present apart, each by the best library kernel, joined by their log-sum-exp.

The past of a chunk is seen by all of its rows, so it needs no mask, and then query tokens and the
heads of a group are alike: fold them into one axis and a kernel without grouped heads reads each
key once. Only the square of the chunk on itself is causal. Pays from a few hundred rows; below
that a library kernel leaves most SMs idle, and `chunk_prefill` cuts the keys instead.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minicache.attention.partial import Partial, merge
from minicache.kernels.chunk_prefill import ChunkPrefill
from minicache.kernels.gather import gather_kv
from minicache.kernels.launch import check_inputs, check_lengths
from minicache.kernels.reference import AttentionResult
from minicache.protocols import AttentionBatch

FROM_ROWS = 512
"""Query tokens of a sequence from which the library kernels win (measured on an H200)."""


def library_attention(
    q: Tensor, keys: Tensor, values: Tensor, scale: float, *, causal: bool
) -> tuple[Tensor, Tensor]:
    """CuDNN's attention: `q: (H, T, D)`, `keys, values: (K, S, D)` → (H, T, D) and lse (H, T)."""
    found = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q[None], keys[None], values[None], None, True, 0.0, causal, False, scale=scale
    )
    return found[0][0], found[1][0].reshape(q.shape[:2])


def merged_chunk(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, table_row: Tensor, length: int, scale: float
) -> AttentionResult:
    """One sequence's chunk, `q: (T, H, D)`: the last T of `length` tokens, gather included."""
    tokens, heads, dim = q.shape
    kv_heads = k_pages.shape[1]
    keys, values = gather_kv(k_pages, v_pages, table_row, length)
    past = length - tokens
    output, lse = library_attention(
        q.transpose(0, 1), keys[:, past:], values[:, past:], scale, causal=True
    )
    output, lse = output.transpose(0, 1), lse.transpose(0, 1)  # (T, H, D), (T, H)
    if past:
        group = heads // kv_heads
        folded = q.view(tokens, kv_heads, group, dim).transpose(0, 1)  # (K, T, G, D)
        before, before_lse = library_attention(
            folded.reshape(kv_heads, tokens * group, dim), keys[:, :past], values[:, :past], scale,
            causal=False,
        )  # fmt: skip
        before = before.view(kv_heads, tokens, group, dim).transpose(0, 1).reshape(q.shape)
        before_lse = before_lse.view(kv_heads, tokens, group).transpose(0, 1).reshape(tokens, heads)
        joined = merge(Partial(before, before_lse), Partial(output, lse))
        output, lse = joined.output.to(q.dtype), joined.lse
    return AttentionResult(output, lse)


class MergedPrefill:
    """Chunks for the engine: library kernels for long ones, `ChunkPrefill` for the rest of the
    step.

    Not graph-safe: it loops over sequences on the host.
    """

    graph_safe = False

    def __init__(self, *, from_rows: int = FROM_ROWS) -> None:
        """`from_rows`: query tokens of a sequence from which the library kernels are used."""
        self._from_rows = from_rows
        self._short = ChunkPrefill()

    def __call__(
        self, q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, scale: float
    ) -> Tensor:
        """`q: (T, H, D)`, pages `(P, K, N, D)` → `(T, H, D)`."""
        if q.device.type != "cuda" or q.dtype == torch.float32 or not self._long(batch):
            return self._short(q, k_pages, v_pages, batch, scale)
        check_inputs(q, k_pages, v_pages, batch.page_table, batch.lengths)
        check_lengths(batch.host_lengths, batch.page_table.shape[1], k_pages.shape[2])
        output = torch.empty_like(q)
        starts = batch.host_query_starts
        for b, length in enumerate(batch.host_lengths):
            rows = slice(starts[b], starts[b + 1])
            if rows.stop - rows.start >= self._from_rows:
                row = batch.page_table[b]
                output[rows] = merged_chunk(q[rows], k_pages, v_pages, row, length, scale).output
        for first, last in self._short_runs(batch):
            rows = slice(starts[first], starts[last])
            part = sub_batch(batch, first, last)
            output[rows] = self._short(q[rows], k_pages, v_pages, part, scale)
        return output

    def _is_long(self, batch: AttentionBatch, b: int) -> bool:
        starts = batch.host_query_starts
        return starts[b + 1] - starts[b] >= self._from_rows

    def _long(self, batch: AttentionBatch) -> bool:
        return any(self._is_long(batch, b) for b in range(len(batch.host_lengths)))

    def _short_runs(self, batch: AttentionBatch) -> list[tuple[int, int]]:
        """Half-open runs `[first, last)` of neighbouring sequences that are not long."""
        runs: list[tuple[int, int]] = []
        for b in range(len(batch.host_lengths)):
            if self._is_long(batch, b):
                continue
            if runs and runs[-1][1] == b:
                runs[-1] = (runs[-1][0], b + 1)
            else:
                runs.append((b, b + 1))
        return runs


def sub_batch(batch: AttentionBatch, first: int, last: int) -> AttentionBatch:
    """The sequences `[first, last)` of a batch, with query rows counted from 0."""
    starts = batch.host_query_starts[first : last + 1]
    counts = [b - a for a, b in zip(starts, starts[1:], strict=False)]
    return AttentionBatch(
        query_starts=batch.query_starts[first : last + 1] - starts[0],
        lengths=batch.lengths[first:last],
        page_table=batch.page_table[first:last],
        max_query=max(counts),
        max_length=max(batch.host_lengths[first:last]),
        host_query_starts=tuple(s - starts[0] for s in starts),
        host_lengths=batch.host_lengths[first:last],
    )
