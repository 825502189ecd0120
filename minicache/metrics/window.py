"""The stretch of time that is measured, so that warm-up and the emptying at the end stay out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minicache.metrics.requests import RequestMetrics, token_times
from minicache.trace import Trace, end_of


@dataclass(frozen=True, slots=True)
class Window:
    """From `start_s` to `end_s` on the trace's clock.

    A request belongs to it when it arrived and ended inside; tokens and steps count by their time.
    """

    start_s: float
    end_s: float

    def __post_init__(self) -> None:
        """Raises `ValueError` for a window that ends before it starts."""
        if not self.end_s >= self.start_s:
            raise ValueError(
                f"The window ends at {self.end_s} s, before it starts at {self.start_s} s; "
                "leave out less at the start or at the end."
            )

    @property
    def duration_s(self) -> float:
        """Its length in seconds."""
        return self.end_s - self.start_s

    def covers(self, request: RequestMetrics) -> bool:
        """Whether a request arrived and ended inside (one without an end must have arrived)."""
        end = request.arrival_s if request.end_s is None else request.end_s
        return self.start_s <= request.arrival_s and end <= self.end_s


def whole(trace: Trace) -> Window:
    """From the first arrival to the last thing that the trace knows of."""
    arrivals = trace.requests.column("arrival")
    end = end_of(trace)
    return Window(min(end, float(arrivals.min())) if arrivals.size else 0.0, end)


def steady(trace: Trace, *, warmup_s: float, cooldown_s: float) -> Window:
    """The whole trace without its first `warmup_s` and last `cooldown_s` seconds."""
    window = whole(trace)
    return Window(window.start_s + warmup_s, window.end_s - cooldown_s)


def worst_gap(
    trace: Trace, rows: Sequence[int] | None = None, window: Window | None = None
) -> float | None:
    """The longest wait between two tokens that any of the requests `rows` (default: all) felt.

    With a window, only the part of a gap inside it counts. None when nobody got two tokens.
    """
    times = token_times(trace)
    chosen = range(len(trace.requests)) if rows is None else rows
    gaps = [_worst(times[row], window) for row in chosen if len(times[row]) > 1]
    return max(gaps, default=None)


def _worst(times: np.ndarray, window: Window | None) -> float:
    inside = times if window is None else np.clip(times, window.start_s, window.end_s)
    return float(np.diff(inside).max())
