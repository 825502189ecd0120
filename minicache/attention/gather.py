"""Bringing a sequence's pages side by side, so that library attention can read them.

A page of one kv head is one contiguous run of N · D numbers, so the gather is a copy of such runs:
on a CPU it costs a fifth of the attention that follows. Triton kernels read pages in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

CALL_COST_TOKENS = 256
"""One call of the library attention costs about as much as this many padded tokens (2-core CPU)."""


class GatherGroup(NamedTuple):
    """Sequences of similar length, attended to in one call. S is the longest, C its pages."""

    members: Tensor
    """(M,) int64: which sequences of the batch."""
    runs: Tensor
    """(M * K * C,) int64: runs of the cache, seen as (P * K, N * D), in the order of the copy."""
    stale: Tensor
    """(Z,) int64: copied rows, seen as (M * K * C * N, D), that hold no token of their sequence."""
    mask: Tensor | None
    """(M, 1, 1, S) float32, -inf past each length; None where all lengths are S."""
    length: int
    """S."""


def group_lengths(lengths: Sequence[int], call_cost: int = CALL_COST_TOKENS) -> list[list[int]]:
    """Split sequences into groups that are padded to their longest, longest group first.

    A sequence joins the current group while its padding costs no more than a call of its own.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if groups and lengths[groups[-1][0]] - lengths[index] <= call_cost:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def plan_group(
    members: Sequence[int], lengths: Sequence[int], page_table: Tensor, shape: torch.Size
) -> GatherGroup:
    """Where everything lies, for `members` of a batch; `shape` of the pages: `(P, K, N, D)`."""
    _, kv_heads, page_size, _ = shape
    own = np.array([lengths[m] for m in members])  # (M,)
    length = int(own.max())
    columns = np.arange(-(-length // page_size))  # (C,)
    if len(columns) > page_table.shape[1]:
        raise ValueError(
            f"A sequence of {length} tokens needs {len(columns)} pages of {page_size}, but the "
            f"page table has {page_table.shape[1]} columns; widen it to the longest sequence."
        )
    # Undefined entries past the end read the sequence's own first page: never another's.
    columns = np.where(columns * page_size < own[:, None], columns, 0)  # (M, C)
    table = page_table.cpu().numpy()
    pages = np.take_along_axis(table[list(members)], columns, axis=1).astype(np.int64)
    runs = pages[:, None, :] * kv_heads + np.arange(kv_heads)[None, :, None]  # (M, K, C)
    filled = np.clip(own[:, None] - columns * page_size, 0, page_size)  # (M, C) tokens in each page
    stale = np.arange(page_size) >= filled[:, None, :, None]  # (M, 1, C, N)
    stale = np.broadcast_to(stale, (*runs.shape, page_size)).reshape(-1).nonzero()[0]
    place = page_table.device
    return GatherGroup(
        members=torch.tensor(members, device=place),
        runs=torch.from_numpy(runs.ravel()).to(place),
        stale=torch.from_numpy(stale).to(place),
        mask=_length_mask(own, length, place),
        length=length,
    )


def _length_mask(own: np.ndarray, length: int, device: torch.device) -> Tensor | None:
    if (own == length).all():
        return None
    visible = torch.from_numpy(np.arange(length) < own[:, None]).to(device)
    mask = torch.zeros(visible.shape, device=device).masked_fill(~visible, -torch.inf)
    return mask[:, None, None]


def gather(pages: Tensor, group: GatherGroup) -> Tensor:
    """Copy the group's tokens side by side. `pages: (P, K, N, D)` → `(M, K, S, D)`.

    Rows that hold no token may hold NaN, which a weight of 0 would not silence: they are zeroed.
    """
    _, kv_heads, page_size, head_dim = pages.shape
    runs = pages.view(-1, page_size * head_dim).index_select(0, group.runs)
    rows = runs.view(-1, head_dim)
    if group.stale.numel():
        rows.index_fill_(0, group.stale, 0)
    whole = rows.view(len(group.members), kv_heads, -1, head_dim)
    return whole[:, :, : group.length]  # (M, K, S, D)
