"""StepPlan → the arrays that the model reads, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minicache.plan import PlanItem


class HostStep(NamedTuple):
    """T tokens of B items, one after the other, in the order of the plan."""

    tokens: NDArray[np.int64]
    """(T,): 0 where the token is still in flight."""
    positions: NDArray[np.int64]
    """(T,)."""
    pages: NDArray[np.int64]
    """(T,): the page of each token's slot."""
    offsets: NDArray[np.int64]
    """(T,)."""
    starts: NDArray[np.int32]
    """(B + 1,): item b has rows [starts[b], starts[b + 1])."""
    lengths: NDArray[np.int32]
    """(B,): stored tokens of each item's sequence after this step."""
    sampled: NDArray[np.int64]
    """(R,): the last row of each item that samples."""
    in_flight: list[tuple[int, int]]
    """(row of this step, row of the page table) of tokens that only the device knows so far."""


def pack(items: Sequence[PlanItem], page_table: NDArray[np.int32], page_size: int) -> HostStep:
    """Lay out `items`. A token without a page trips an assertion: the plan forgot an entry."""
    begins = np.array([item.start for item in items], dtype=np.int64)
    lengths = np.array([item.stop for item in items], dtype=np.int64)
    counts = lengths - begins
    starts = np.concatenate([[0], counts.cumsum()])  # (B + 1,)
    positions = np.arange(starts[-1]) + np.repeat(begins - starts[:-1], counts)  # (T,)
    rows = np.repeat([item.row for item in items], counts)
    pages = page_table[rows, positions // page_size].astype(np.int64)
    assert (pages >= 0).all(), "a token to be computed has no page in the table"
    samples = np.array([item.samples for item in items], dtype=bool)
    tokens, in_flight = _tokens(items, starts)
    return HostStep(
        tokens=tokens,
        positions=positions,
        pages=pages,
        offsets=positions % page_size,
        starts=starts.astype(np.int32),
        lengths=lengths.astype(np.int32),
        sampled=starts[1:][samples] - 1,
        in_flight=in_flight,
    )


def _tokens(
    items: Sequence[PlanItem], starts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
    tokens = np.zeros(starts[-1], dtype=np.int64)
    in_flight: list[tuple[int, int]] = []
    for item, start, stop in zip(items, starts[:-1], starts[1:], strict=True):
        if item.tokens:
            tokens[start:stop] = item.tokens
        else:
            in_flight.append((int(start), item.row))
    return tokens, in_flight
