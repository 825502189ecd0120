"""What a decode launch does: program shape, cutting, bytes. Pure, with neither torch nor Triton.

The same numbers serve the launcher, the tests and the pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minicache.kernels.cutting import (
    CutRule,
    Cutting,
    Item,
    LaunchShape,
    ceil_div,
    cut,
    units_of,
)
from minicache.kernels.hardware import Gpu

BYTES_IN_FLIGHT = 12.3 * 1024
"""Bytes a lone program keeps in flight, measured on an H200 as its rate times 700 ns of latency."""
EXCHANGE_BYTES = 6144
"""Shared memory, beside the load buffers, through which warps exchange scores (compiler's report).

"""


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """What a decode launch does. Bytes are of one layer."""

    shape: LaunchShape
    rule: CutRule
    resident: int
    """Programs that one SM holds at once."""
    slots: int
    """Programs that the GPU holds at once."""
    grid: int
    """Programs launched, empty ones included."""
    programs: int
    """Programs that have work."""
    waves: float
    items: tuple[Item, ...]
    pieces: tuple[int, ...]
    """How far each sequence is cut (each row tile of it, where the group needs several)."""
    kv_bytes: int
    """Keys and values read; a group wider than a program reads them once a row tile."""
    partial_bytes: int
    """Partial results, written and read again."""
    bytes_in_flight: float
    """An SM, on average over the launch: Little's law asks bandwidth * latency / SMs."""


def decode_shape(group: int, head_dim: int, element_bytes: int) -> LaunchShape:
    """The program shape: all query heads of a KV head, padded to the 16 rows a tensor core takes.

    Four programs an SM, each with one tile in flight, read faster than fewer programs with deeper
    pipelines; the register cap is what lets four of them fit.
    """
    block_m = min(max(16, 1 << (group - 1).bit_length()), 64)
    row_bytes = (1 << (head_dim - 1).bit_length()) * element_bytes
    tile = 64 if row_bytes <= 256 else 32 if row_bytes <= 512 else 16
    small = block_m == 16 and row_bytes <= 256
    return LaunchShape(block_m, tile, warps=4, stages=2, registers=128 if small else None)


def resident_programs(gpu: Gpu, shape: LaunchShape, head_dim: int, element_bytes: int) -> int:
    """Programs an SM holds, limited by registers (255 a thread unless capped) and load buffers."""
    by_registers = gpu.registers // (shape.warps * 32 * (shape.registers or 255))
    row_bytes = (1 << (head_dim - 1).bit_length()) * element_bytes
    buffers = 2 * (shape.stages - 1) * shape.tile * row_bytes + EXCHANGE_BYTES + gpu.reserved_bytes
    return max(1, min(by_registers, gpu.shared_bytes // buffers))


def even_wave(wave: int, units: int) -> int:
    """A wave that equal units divide evenly, where that costs it little: idle programs cost 1 to 2
    %.
    """
    even = units * (wave // units)
    return even if units >= 16 and even * 16 >= wave * 15 else wave


def units_for(batch: int, group: int, block_m: int) -> int:
    """Row blocks of a decode batch: one a sequence, more for a group wider than a program."""
    return batch * ceil_div(group, block_m)


def decode_launch(
    gpu: Gpu,
    batch: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    element_bytes: int,
    *,
    split_size: int | None = None,
    num_splits: int | None = None,
) -> tuple[LaunchShape, CutRule]:
    """Program shape and cutting of a decode: functions of shapes alone, so fixed under a CUDA
    graph.

    `split_size` (tokens) makes results independent of the batch; `num_splits` forces a count.
    """
    group = num_heads // num_kv_heads
    shape = decode_shape(group, head_dim, element_bytes)
    wave = max(1, gpu.sms * resident_programs(gpu, shape, head_dim, element_bytes) // num_kv_heads)
    units = units_for(batch, group, shape.block_m)
    wave = even_wave(wave, units)
    # Room for two pieces a unit, in whole waves: ragged batches need it.
    grid = wave * max(1, ceil_div(2 * units, wave))
    cutting, fixed, slots = Cutting.AUTO, 1, wave
    if split_size is not None:
        cutting, fixed = Cutting.SIZE, max(1, ceil_div(split_size, shape.tile))
    elif num_splits is not None:
        # An experiment: every piece its own program.
        cutting, fixed = Cutting.COUNT, max(1, num_splits)
        slots = units * fixed
    rule = CutRule(cutting, shape.tile, wave, grid, slots, fixed)
    return shape, rule


def plan(
    gpu: Gpu,
    lengths: Sequence[int],
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    *,
    element_bytes: int = 2,
    window: int = 0,
    split_size: int | None = None,
    num_splits: int | None = None,
) -> DecodePlan:
    """What `flash_decode` will launch for `lengths` (tokens a sequence) on `gpu`. Pure."""
    group = num_heads // num_kv_heads
    shape, rule = decode_launch(
        gpu, len(lengths), num_heads, num_kv_heads, head_dim, element_bytes,
        split_size=split_size, num_splits=num_splits,
    )  # fmt: skip
    units = units_of(range(len(lengths) + 1), lengths, group, shape.block_m, window)
    items = tuple(cut(units, rule))
    resident = resident_programs(gpu, shape, head_dim, element_bytes)
    slots = gpu.sms * resident
    programs = len(items) * num_kv_heads
    tokens = sum(item.stop - item.start for item in items)
    split = sum(units[item.unit].rows for item in items if item.pieces > 1) * num_kv_heads
    in_flight = min(programs, slots) / gpu.sms * BYTES_IN_FLIGHT
    return DecodePlan(
        shape, rule, resident, slots, min(rule.slots, max(rule.grid, len(items))) * num_kv_heads,
        programs,
        programs / slots, items, tuple(_pieces_by_unit(items, len(units))),
        2 * tokens * num_kv_heads * head_dim * element_bytes,
        2 * split * (head_dim + 1) * 4, in_flight,
    )  # fmt: skip


def _pieces_by_unit(items: Sequence[Item], units: int) -> list[int]:
    pieces = [0] * units
    for item in items:
        pieces[item.unit] = item.pieces
    return pieces
