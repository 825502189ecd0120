# pyright: basic, reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportOptionalOperand=false, reportReturnType=false
# The bodies of jit functions are Triton's language, which a Python type checker cannot follow.
"""The planning kernel: cut a step's key ranges into work items on the device, once for all layers.

A program that looks for its own share repeats the search in every program of every layer; here it
is done once, and a program reads its share in one 32-byte load.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from minicache.kernels.cutting import CutRule, Cutting, LaunchShape, ceil_div

ITEM_FIELDS = 8
"""sequence, first row, rows, first key, end of keys, shift, pieces, unit: int32 each."""


@dataclass(frozen=True, slots=True)
class WorkList:
    """A step's work items, on the device. Valid for every layer of the step.

    `items: (capacity, 8)` int32, of which the first `first_item[-1]` are filled;
    `first_item: (units + 1,)` int32: the items of unit u are `[first_item[u], first_item[u + 1])`.
    """

    items: torch.Tensor
    first_item: torch.Tensor
    rule: CutRule
    shape: LaunchShape
    """Of the programs that will attend the items."""
    slots: int
    """Grid size an attention kernel should use along items."""
    most_pieces: int
    """No unit can be cut into more."""

    @property
    def capacity(self) -> int:
        """Items there is room for."""
        return self.items.shape[0]

    @property
    def num_units(self) -> int:
        """Units there is room for."""
        return self.first_item.shape[0] - 1

    @property
    def num_items(self) -> torch.Tensor:
        """(1,) int32 on the device: how many items are filled."""
        return self.first_item[-1:]


@triton.jit
def _pieces(tiles, size, live):
    return tl.where(live, tl.maximum(tl.cdiv(tiles, size), 1), 0)


@triton.jit
def _smallest_size(tiles, live, limit):
    """Bisect for the smallest piece with which all units make at most `limit` items."""
    low = 1
    high = tl.maximum(tl.max(tiles, axis=0), 1)
    while low < high:
        middle = (low + high) // 2
        fits = tl.sum(_pieces(tiles, middle, live), axis=0) <= limit
        high = tl.where(fits, middle, high)
        low = tl.where(fits, low, middle + 1)
    return low


@triton.jit
def _find_units(units, query_starts, batch, GROUP: tl.constexpr, BLOCK_M: tl.constexpr):
    """(sequence, row tile within it) of each unit, and how many units there are."""
    sequence = tl.zeros_like(units)
    tile = tl.zeros_like(units)
    found = 0
    begin = tl.load(query_starts)
    for b in range(batch):
        end = tl.load(query_starts + b + 1)
        count = tl.cdiv((end - begin) * GROUP, BLOCK_M)
        here = (units >= found) & (units < found + count)
        sequence = tl.where(here, b, sequence)
        tile = tl.where(here, units - found, tile)
        found += count
        begin = end
    return sequence, tile, found


@triton.jit(do_not_specialize=["batch", "num_units", "wave", "grid", "fixed"])
def work_kernel(
    query_starts, lengths, items, first_item, batch, num_units, wave, grid, fixed,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, TILE: tl.constexpr, WINDOW: tl.constexpr,
    BLOCK_U: tl.constexpr, MODE: tl.constexpr, DECODE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One program. `DECODE`: every sequence has one query token, so units need no search."""
    if DEPENDENT:
        # It does not let the next kernel start early, which may then read the items without a wait.
        gdc_wait()
    units = tl.arange(0, BLOCK_U)
    if DECODE:
        row_tiles: tl.constexpr = (GROUP + BLOCK_M - 1) // BLOCK_M
        sequence, tile, found = units // row_tiles, units % row_tiles, batch * row_tiles
    else:
        sequence, tile, found = _find_units(units, query_starts, batch, GROUP, BLOCK_M)
    live = units < found
    length = tl.load(lengths + sequence, mask=live, other=0)
    if DECODE:
        row_start = sequence
        queries = tl.full([BLOCK_U], 1, tl.int32)
    else:
        row_start = tl.load(query_starts + sequence, mask=live, other=0)
        queries = tl.load(query_starts + sequence + 1, mask=live, other=0) - row_start
    before = length - queries
    rows = tl.minimum(queries * GROUP - tile * BLOCK_M, BLOCK_M)
    end = tl.maximum(before + (tile * BLOCK_M + rows - 1) // GROUP + 1, 0)
    begin = tl.zeros_like(end)
    if WINDOW > 0:
        begin = tl.maximum(before + tile * BLOCK_M // GROUP - WINDOW + 1, 0)
    tiles = tl.where(live, tl.cdiv(tl.maximum(end - begin, 0), TILE), 0)

    if MODE == 0:
        size = _smallest_size(tiles, live, wave)
        # Ragged, or more units than a wave holds: shorter pieces, in more waves.
        uneven = (size * wave * 4 > tl.sum(tiles, axis=0) * 5) | (found > wave)
        size = tl.where(uneven, _smallest_size(tiles, live, grid), size) + tl.zeros_like(tiles)
    elif MODE == 1:
        size = fixed + tl.zeros_like(tiles)
    else:
        size = tl.maximum(tl.cdiv(tiles, fixed), 1)
    pieces = _pieces(tiles, size, live)
    if MODE != 1:
        size = tl.maximum(tl.cdiv(tiles, tl.maximum(pieces, 1)), 1)

    first = tl.cumsum(pieces, axis=0) - pieces
    tl.store(first_item + units, first, mask=units <= num_units)
    for piece in range(tl.max(pieces, axis=0)):
        mine = piece < pieces
        start = begin + piece * size * TILE
        target = items + (first + piece) * 8
        tl.store(target, sequence, mask=mine)
        tl.store(target + 1, row_start * GROUP + tile * BLOCK_M, mask=mine)
        tl.store(target + 2, rows, mask=mine)
        tl.store(target + 3, start, mask=mine)
        tl.store(target + 4, tl.minimum(start + size * TILE, end), mask=mine)
        tl.store(target + 5, before - row_start, mask=mine)
        tl.store(target + 6, pieces, mask=mine)
        tl.store(target + 7, units, mask=mine)


def make_work(
    lengths: torch.Tensor,
    query_starts: torch.Tensor | None,
    num_rows: int,
    columns: int,
    page_size: int,
    group: int,
    shape: LaunchShape,
    rule: CutRule,
    *,
    window: int = 0,
    dependent: bool = False,
) -> WorkList:
    """Launch the planning kernel. `lengths: (B,)`, `query_starts: (B + 1,)` int32, or None for a
    decode of one token a sequence. `num_rows` is T. Nothing is read back to the host.
    """
    batch = lengths.shape[0]
    if query_starts is None:
        num_units = batch * ceil_div(group, shape.block_m)
    else:
        num_units = ceil_div(num_rows * group, shape.block_m) + batch
    capacity, slots = _capacity(rule, num_units, ceil_div(columns * page_size, rule.tile))
    items = torch.empty((capacity, ITEM_FIELDS), dtype=torch.int32, device=lengths.device)
    first_item = torch.empty(num_units + 1, dtype=torch.int32, device=lengths.device)
    block_u = triton.next_power_of_2(num_units + 1)
    work_kernel[(1,)](
        lengths if query_starts is None else query_starts, lengths, items, first_item,
        batch, num_units, rule.wave, rule.grid, rule.fixed,
        group, shape.block_m, rule.tile, window, block_u, rule.cutting.value, query_starts is None,
        dependent, num_warps=4 if block_u <= 512 else 16, **launch_options(dependent),
    )  # fmt: skip
    most = rule.fixed if rule.cutting is Cutting.COUNT else capacity
    if query_starts is None and rule.cutting is Cutting.AUTO:
        most = capacity - num_units + 1  # each of the other units takes an item
    return WorkList(items, first_item, rule, shape, slots, most)


def _capacity(rule: CutRule, num_units: int, most_tiles: int) -> tuple[int, int]:
    """(items there must be room for, slots along the grid)."""
    capacity = max(rule.grid, num_units)
    if rule.cutting is Cutting.COUNT:
        capacity = num_units * rule.fixed
    elif rule.cutting is Cutting.SIZE:
        capacity = num_units * max(ceil_div(most_tiles, rule.fixed), 1)
    return capacity, min(capacity, rule.slots)


def launch_options(dependent: bool, registers: int | None = None) -> dict[str, object]:
    """Options of a launch that may start before the kernel in front of it has ended (Hopper on),
    and whose threads use at most so many `registers`.
    """
    options: dict[str, object] = {"launch_pdl": True} if dependent else {}
    return options if registers is None else {**options, "maxnreg": registers}
