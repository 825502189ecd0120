"""How the key ranges of a step are cut into work items: pure arithmetic, no torch, no Triton.

A *unit* is a block of query rows of one sequence and the keys they see. Cutting gives each unit one
or more *pieces* of whole tiles. The same numbers are computed on the device (`work`), where lengths
live under a CUDA graph; tests hold the two equal, and pictures draw this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The shape of one program of the attention kernel."""

    block_m: int
    """Query rows (token, head of the group)."""
    tile: int
    """Keys loaded at once."""
    warps: int
    stages: int
    """Depth of the load pipeline."""
    registers: int | None = None
    """A thread may use no more, so that more programs fit on an SM."""


class Cutting(Enum):
    """Who decides how far a unit is cut."""

    AUTO = 0
    """The whole batch: equal tokens an item, as many items as the GPU holds at once."""
    SIZE = 1
    """A fixed number of tiles a piece: the bits of a sequence do not depend on its neighbours."""
    COUNT = 2
    """A fixed number of pieces a unit: for experiments."""


@dataclass(frozen=True, slots=True)
class CutRule:
    """The numbers behind a cutting, in items a KV head and in tiles.

    AUTO takes the smallest piece whose items fit into one wave. If that piece is more than 5/4 of
    an even share (one long sequence among many short ones), or if there are more units than a wave
    holds, it takes the smallest whose items fit into the grid, in several waves.
    """

    cutting: Cutting
    tile: int
    """Keys a tile."""
    wave: int = 1
    """Items a KV head that are resident at once."""
    grid: int = 1
    """Items a KV head that there is room for."""
    slots: int = 1
    """Programs a KV head that are launched; each takes every so many-th item."""
    fixed: int = 1
    """Tiles a piece (SIZE) or pieces a unit (COUNT)."""


class Unit(NamedTuple):
    """Query rows `[row0, row0 + rows)` of `sequence`, which see keys within `[begin, end)`.

    Rows pack (token, query head of the group): row r is token r // group. Row r sees the keys up to
    position r // group + shift.
    """

    sequence: int
    row0: int
    rows: int
    begin: int
    end: int
    shift: int


class Item(NamedTuple):
    """One program's share: the keys `[start, stop)` of a unit that was cut into `pieces`."""

    unit: int
    start: int
    stop: int
    pieces: int


def ceil_div(a: int, b: int) -> int:
    """The smallest integer not below a / b."""
    return -(-a // b)


def units_of(
    query_starts: Sequence[int], lengths: Sequence[int], group: int, block_m: int, window: int = 0
) -> list[Unit]:
    """The units of a ragged batch whose queries are the last tokens of their sequences.

    `group`: query heads a KV head; `block_m`: rows a program; `window` 0 means none.
    """
    units: list[Unit] = []
    for sequence, length in enumerate(lengths):
        start, stop = query_starts[sequence], query_starts[sequence + 1]
        rows = (stop - start) * group
        before = length - (stop - start)
        for offset in range(0, rows, block_m):
            count = min(block_m, rows - offset)
            end = max(before + (offset + count - 1) // group + 1, 0)
            begin = max(before + offset // group - window + 1, 0) if window else 0
            units.append(Unit(sequence, start * group + offset, count, begin, end, before - start))
    return units


def num_pieces(tiles: int, size: int) -> int:
    """Pieces of at most `size` tiles. A unit that sees nothing still needs a program to say so."""
    return max(ceil_div(tiles, size), 1)


def smallest_size(tiles: Sequence[int], limit: int) -> int:
    """The smallest piece, in tiles, with which all units together make at most `limit` items.

    With more units than `limit` nothing is cut: the answer is the longest unit.
    """
    low, high = 1, max([1, *tiles])
    while low < high:
        middle = (low + high) // 2
        if sum(num_pieces(t, middle) for t in tiles) <= limit:
            high = middle
        else:
            low = middle + 1
    return low


def piece_size(tiles: Sequence[int], rule: CutRule) -> int:
    """Tiles a piece for the whole batch (AUTO, SIZE); for COUNT the answer differs by unit: 0."""
    if rule.cutting is Cutting.SIZE:
        return rule.fixed
    if rule.cutting is Cutting.COUNT:
        return 0
    size = smallest_size(tiles, rule.wave)
    uneven = size * rule.wave * 4 > sum(tiles) * 5 or len(tiles) > rule.wave
    return smallest_size(tiles, rule.grid) if uneven else size


def cut(units: Sequence[Unit], rule: CutRule) -> list[Item]:
    """The work items of a step, unit by unit, pieces in the order of their keys."""
    tiles = [ceil_div(max(unit.end - unit.begin, 0), rule.tile) for unit in units]
    shared = piece_size(tiles, rule)
    items: list[Item] = []
    for number, (unit, count) in enumerate(zip(units, tiles, strict=True)):
        pieces = num_pieces(count, shared or max(ceil_div(count, rule.fixed), 1))
        size = rule.fixed if rule.cutting is Cutting.SIZE else max(ceil_div(count, pieces), 1)
        for piece in range(pieces):
            start = unit.begin + piece * size * rule.tile
            items.append(Item(number, start, min(start + size * rule.tile, unit.end), pieces))
    return items
