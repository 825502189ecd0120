"""How full the page pool and the queues were, weighted by time.

What was noted after step k stands for the time from the start of k to the start of the next step,
since a step's pages are taken when it is planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minicache.metrics.window import Window
from minicache.trace import Trace


@dataclass(frozen=True, slots=True)
class Level:
    """A quantity over time; None where no time passed."""

    mean: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Shares of the pool's pages (or of the tokens they can store), and the queues."""

    held_share: Level
    """Pages that a request holds."""
    stored_share: Level
    """Tokens stored for live requests, of those that fit in the pool; shared pages count twice."""
    cached_share: Level
    """Pages that nobody holds but that can still be hit; not part of `held_share`."""
    waiting: Level
    running: Level


def pool_use(trace: Trace, window: Window) -> PoolUse:
    """Levels within the window."""
    seconds = _seconds(trace, window)
    total = trace.steps.column("pages_total").astype(np.float64)

    def level(name: str, whole: NDArray[Any] | float = 1.0) -> Level:
        return _level(trace.steps.column(name) / np.maximum(whole, 1.0), seconds)

    return PoolUse(
        held_share=level("pages_held", total),
        stored_share=level("stored_tokens", total * trace.page_size),
        cached_share=level("pages_cached", total),
        waiting=level("waiting"),
        running=level("running"),
    )


def _seconds(trace: Trace, window: Window) -> NDArray[np.float64]:
    """How long each step's note stands, inside the window."""
    starts = trace.steps.column("t_start")
    edges = np.append(starts, window.end_s) if starts.size else starts
    return np.diff(np.clip(edges, window.start_s, window.end_s))


def _level(values: NDArray[Any], seconds: NDArray[np.float64]) -> Level:
    seen = seconds > 0
    if not seen.any():
        return Level(None, None)
    return Level(
        mean=float(np.average(values[seen], weights=seconds[seen])),
        max=float(values[seen].max()),
    )
