"""Microseconds a call under a CUDA graph, with a cold L2, contestants alternating."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

Call = Callable[[], object]


class Timing(NamedTuple):
    """Of one call, in microseconds: the median over replays, and the spread of the middle half."""

    median: float
    low: float
    high: float


@dataclass(slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    calls: int
    samples: list[float]


def capture(calls: Sequence[Call], repeats: int = 1) -> _Captured:
    """Capture `calls`, one after the other and `repeats` times over, in one graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in [*calls, *calls[:1]]:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            for call in calls:
                call()
    return _Captured(graph, len(calls) * repeats, [])


def replay_us(captured: _Captured) -> float:
    """Microseconds a call of one replay."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    captured.graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000.0 / captured.calls


def race(
    contestants: Mapping[str, Sequence[Call]],
    *,
    rounds: int = 5,
    replays: int = 5,
    graph_us: float = 1500.0,
) -> dict[str, Timing]:
    """Time all contestants in turn, `rounds` times; each brings one call a KV set.

    The sets of one contestant must be larger than the L2 cache together, so that a call never finds
    its keys there. A graph holds about `graph_us` microseconds of work.
    """
    captured: dict[str, _Captured] = {}
    for name, calls in contestants.items():
        once = capture(calls)
        replay_us(once)
        repeats = max(1, round(graph_us / (replay_us(once) * once.calls)))
        captured[name] = capture(calls, repeats) if repeats > 1 else once
    for _ in range(rounds):
        for entry in captured.values():
            replay_us(entry)  # settles clocks and caches after the contestant before
            entry.samples += [replay_us(entry) for _ in range(replays)]
    return {name: _summary(entry.samples) for name, entry in captured.items()}


def _summary(samples: Sequence[float]) -> Timing:
    quarters = statistics.quantiles(samples, n=4)
    return Timing(statistics.median(samples), quarters[0], quarters[2])
