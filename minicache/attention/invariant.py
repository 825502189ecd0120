"""Attention whose bits do not depend on the batch, on chunking or on what is cached.

A matrix product may sum in another order when its shape changes. So every product here has one
shape: query rows stand in blocks of 32, keys in tiles of 128, both laid out by absolute position.
A row then meets the same tiles in the same order, at the same place of the same shapes, whoever
computes with it; keys that it may not see enter with weight 0, which changes nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minicache.attention import online
from minicache.attention.gather import gather, plan_group
from minicache.attention.naive import group_heads
from minicache.protocols import AttentionBatch

BLOCK = 32
"""Query rows of one product."""
TILE = 128
"""Keys of one product; a multiple of BLOCK, so that all rows of a block meet equally many tiles."""


class InvariantAttention:
    """Implements `protocols.PagedAttention` in float32, one block of rows at a time."""

    graph_safe = False

    def __call__(
        self, q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, scale: float
    ) -> Tensor:
        """`q: (T, H, D)`, pages `(P, K, N, D)` → `(T, H, D)`."""
        starts = batch.host_query_starts or tuple(batch.query_starts.tolist())
        lengths = batch.host_lengths or tuple(batch.lengths.tolist())
        output = torch.empty_like(q)
        for b, length in enumerate(lengths):
            group = plan_group([b], lengths, batch.page_table, k_pages.shape)
            keys, values = _tiles(gather(k_pages, group)[0]), _tiles(gather(v_pages, group)[0])
            rows = slice(starts[b], starts[b + 1])
            output[rows] = _one_sequence(q[rows], keys, values, length, scale)
        return output


def _tiles(tokens: Tensor) -> list[Tensor]:
    """`(K, S, D)` → tiles `(K, TILE, D)` float32, the last one filled up with zeros."""
    kv_heads, length, head_dim = tokens.shape
    padded = tokens.new_zeros(kv_heads, -(-length // TILE) * TILE, head_dim, dtype=torch.float32)
    padded[:, :length] = tokens
    return [tile.contiguous() for tile in padded.split(TILE, dim=1)]


def _one_sequence(
    q: Tensor, keys: list[Tensor], values: list[Tensor], length: int, scale: float
) -> Tensor:
    """`q: (T, H, D)`, the rows at positions [length - T, length) → `(T, H, D)`."""
    output = torch.empty_like(q)
    first = length - q.shape[0]
    for begin in range(first // BLOCK * BLOCK, length, BLOCK):
        low, high = max(begin, first), min(begin + BLOCK, length)
        block = q.new_zeros(BLOCK, *q.shape[1:])  # (BLOCK, H, D)
        block[low - begin : high - begin] = q[low - first : high - first]
        count = (begin + BLOCK - 1) // TILE + 1
        mixed = _one_block(block, keys[:count], values[:count], begin, scale)
        output[low - first : high - first] = mixed[low - begin : high - begin]
    return output


def _one_block(
    q: Tensor, keys: list[Tensor], values: list[Tensor], begin: int, scale: float
) -> Tensor:
    """`q: (BLOCK, H, D)` at positions from `begin` on, tiles `(K, TILE, D)` → `(BLOCK, H, D)`."""
    kv_heads = keys[0].shape[0]
    queries = group_heads(q.float() * scale, kv_heads).permute(1, 2, 0, 3)  # (K, G, BLOCK, D)
    stacked = queries.flatten(1, 2)[:, None]  # (K, 1, G * BLOCK, D)
    limit = torch.arange(begin, begin + BLOCK, device=q.device).repeat(queries.shape[1])
    running = online.start(stacked)
    for number, (k, v) in enumerate(zip(keys, values, strict=True)):
        running = online.step(running, stacked, k, v, limit - number * TILE)
    output = online.finish(running).output.view(kv_heads, -1, BLOCK, q.shape[-1])
    return output.permute(2, 0, 1, 3).reshape(q.shape).to(q.dtype)
