"""Rows of the page table: who sits in which, which pages are theirs, and when both come back.

A step in flight reads and writes the pages it names, so what a request leaves behind is released
only when no step in flight can name it any more. Until then its pages are *coming*.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from minicache.page_pool import PagePool
from minicache.request import Request


class _Left(NamedTuple):
    """A row and pages to be released when `step` has been collected."""

    step: int
    row: int
    pages: list[int]


class PageTable:
    """The only owner of rows, and of what requests hold in the page pool.

    It keeps `Request.row`, `.pages` and `.capacity` true.
    """

    def __init__(self, pool: PagePool, num_rows: int) -> None:
        self.pool = pool
        self.page_size = pool.page_size
        self.holders: list[Request | None] = [None] * num_rows
        """By row. A row is empty from the moment its request leaves, but is given away only later,
        so an item of a step in flight finds its own request here, or None."""
        self.num_coming = 0
        """Pages that are released when steps in flight have been collected (at most: a page with
        another holder stays with it)."""
        self._rows = list(range(num_rows - 1, -1, -1))
        self._left: deque[_Left] = deque()
        self._newest_step = -1

    @property
    def has_row(self) -> bool:
        """Whether another request can move in."""
        return bool(self._rows)

    def pages_for(self, num_tokens: int) -> int:
        """How many pages `num_tokens` stored tokens take."""
        return -(-num_tokens // self.page_size)

    def outgrown_by(self, num_tokens: int) -> bool:
        """Whether so many tokens are more than the whole pool stores."""
        return num_tokens > self.pool.num_pages * self.page_size

    def move_in(self, request: Request, pages: list[int]) -> None:
        """Give `request` a row. `pages` are already held for it."""
        request.row = self._rows.pop()
        self.holders[request.row] = request
        self._extend(request, pages)

    def grow(self, request: Request, count: int) -> list[int]:
        """Take `count` more pages for `request` and return them. Raises `OutOfPages`."""
        pages = self.pool.allocate(count)
        self._extend(request, pages)
        return pages

    def move_out(self, request: Request) -> None:
        """Take row and pages from `request`: now, or behind the newest step if one names them."""
        step = self._newest_step if request.num_scheduled > request.num_computed else -1
        left = _Left(step, request.row, request.pages)
        self.holders[request.row] = None
        request.row, request.pages, request.capacity = -1, [], 0
        if step < 0:
            self._release(left)
        else:
            self._left.append(left)
            self.num_coming += len(left.pages)

    def submitted(self, step: int) -> None:
        """Step `step` is in flight from now on."""
        self._newest_step = step

    def collected(self, step: int) -> None:
        """Step `step`, and every one before it, has ended: release what waited for it."""
        while self._left and self._left[0].step <= step:
            left = self._left.popleft()
            self.num_coming -= len(left.pages)
            self._release(left)

    def _extend(self, request: Request, pages: list[int]) -> None:
        request.pages += pages
        request.capacity = len(request.pages) * self.page_size

    def _release(self, left: _Left) -> None:
        self.pool.free(left.pages)
        self._rows.append(left.row)
