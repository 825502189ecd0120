"""Tokens and items of each request, found for all requests at once: millions of rows, no loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from minicache.trace.trace import Trace


class Grouped:
    """The rows of a table, sorted by the request they belong to; within a request, as written."""

    __slots__ = ("bounds", "order")

    def __init__(self, request_rows: NDArray[Any], num_requests: int) -> None:
        """`request_rows[i]` is the request that row i belongs to, in `[0, num_requests)`."""
        self.order: NDArray[np.intp] = np.argsort(request_rows, kind="stable")
        """Row numbers, those of request 0 first."""
        counts = np.bincount(request_rows, minlength=num_requests)
        self.bounds: NDArray[np.int64] = np.concatenate(([0], np.cumsum(counts)))
        """Request r has `order[bounds[r]:bounds[r + 1]]`."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many rows each request has."""
        return np.diff(self.bounds)

    def rows(self, request: int) -> NDArray[np.intp]:
        """The table's rows of one request."""
        return self.order[self.bounds[request] : self.bounds[request + 1]]


def request_rows(trace: Trace, numbers: NDArray[Any]) -> NDArray[np.intp]:
    """The row in `trace.requests` of each number. Raises `KeyError` for a request never added."""
    if not numbers.size:
        return np.zeros(0, dtype=np.intp)
    known = trace.requests.column("number")
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known, numbers, sorter=order), len(known) - 1)
    rows = order[place] if known.size else place
    if not known.size or not np.array_equal(known[rows], numbers):
        raise KeyError("The trace names a request that was never added; call add_request first.")
    return rows


def group(trace: Trace, numbers: NDArray[Any]) -> Grouped:
    """The rows of a table with the column `numbers`, by request."""
    return Grouped(request_rows(trace, numbers), len(trace.requests))
