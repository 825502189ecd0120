"""The machine's two ceilings, measured: how fast it multiplies, and how fast it moves bytes.

Predictions in the lessons are made from these, so they must not come from the thing predicted: a
product of plain matrices and a copy of a plain array.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from minicache.hardware import describe

COPIED_BYTES = 64 * 2**20
"""Larger than the caches of most processors."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the machine can do at best."""

    flops_per_s: float
    """Of a product of two square matrices, counted as 2 · n³."""
    bytes_per_s: float
    """Of a copy, counted as bytes read plus bytes written."""
    source: str

    @property
    def flops_per_byte(self) -> float:
        """Work with fewer FLOPs a byte than this waits for memory, with more for arithmetic."""
        return self.flops_per_s / self.bytes_per_s

    def seconds(self, flops: float, num_bytes: float) -> float:
        """The least time that this work can take when arithmetic and memory do not overlap."""
        return flops / self.flops_per_s + num_bytes / self.bytes_per_s

    def __str__(self) -> str:
        """Two numbers, and where they are from."""
        return (
            f"{self.flops_per_s / 1e9:,.0f} GFLOP/s, {self.bytes_per_s / 1e9:,.1f} GB/s, "
            f"so {self.flops_per_byte:.0f} FLOPs a byte ({self.source})"
        )


Clock = Callable[[], float]
"""Seconds. With one thread `time.process_time` leaves out what other programs take."""


def ceilings(clock: Clock = time.perf_counter, *, size: int = 1024, repeats: int = 7) -> Ceilings:
    """Measure both on the CPU in float32, in about a second: the best of `repeats` runs of each."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    source = torch.ones(COPIED_BYTES // 4)
    target = torch.empty_like(source)
    product = best_seconds(lambda: torch.mm(left, right), repeats, clock)
    copy = best_seconds(lambda: target.copy_(source), repeats, clock)
    return Ceilings(
        flops_per_s=2 * size**3 / product,
        bytes_per_s=2 * source.numel() * source.element_size() / copy,
        source=f"measured here: {describe(torch.device('cpu'))}",
    )


def best_seconds(work: Callable[[], object], repeats: int, clock: Clock) -> float:
    """The shortest of `repeats` runs, after a warm-up: other programs only make it longer."""
    work()
    times: list[float] = []
    for _ in range(repeats):
        begin = clock()
        work()
        times.append(clock() - begin)
    return min(times)
