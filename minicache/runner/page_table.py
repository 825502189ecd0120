"""The executor's copy of the page table: a row a request, changed by each plan's entries."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from minicache.plan import PageEntry


class PageTable:
    """`entries[row, column]` is the page of tokens [column * N, (column + 1) * N), or -1."""

    def __init__(self, num_rows: int, num_columns: int) -> None:
        self.entries: NDArray[np.int32] = np.full((num_rows, num_columns), -1, dtype=np.int32)

    def forget(self, row: int) -> None:
        """The row has a new owner: nothing of the old one may be read."""
        self.entries[row] = -1

    def apply(self, entries: Iterable[PageEntry]) -> None:
        """Take over the changed entries."""
        for row, column, page in entries:
            self.entries[row, column] = page
