"""What the engine computed, what of it was wasted, and what the prefix cache saved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minicache.metrics.window import Window
from minicache.trace import EventKind, Trace, group


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens in and out. Ratios are over the whole trace, as waste may precede what it spoiled."""

    steps: int
    """Steps that started within the window."""
    prefill_tokens: int
    """Positions that those steps computed in chunks, a second time included."""
    preemptions: int
    """Within the window."""
    recompute_ratio: float | None
    """(needed + computed again) / needed prefill tokens: 1 when nothing was computed twice.
    Needed are the prompt positions that were reached and not supplied by the prefix cache."""
    prefix_hit_rate: float | None
    """Cached / prompt tokens of the requests that were admitted."""


def work(trace: Trace, window: Window) -> Work:
    """The work within a window."""
    starts = trace.steps.column("t_start")
    inside = (window.start_s <= starts) & (starts <= window.end_s)
    return Work(
        steps=int(inside.sum()),
        prefill_tokens=int(trace.steps.column("prefill_tokens")[inside].sum()),
        preemptions=sum(
            event.kind is EventKind.PREEMPTED and window.start_s <= event.time <= window.end_s
            for event in trace.events
        ),
        recompute_ratio=_recompute_ratio(trace),
        prefix_hit_rate=_prefix_hit_rate(trace),
    )


def _recompute_ratio(trace: Trace) -> float | None:
    if not len(trace.items):
        return None
    grouped = group(trace, trace.items.column("number"))
    ran = grouped.counts > 0
    first = grouped.bounds[:-1][ran]
    start = trace.items.column("start").astype(np.int64)[grouped.order]
    stop = trace.items.column("stop").astype(np.int64)[grouped.order]
    low: NDArray[np.int64] = np.minimum.reduceat(start, first)
    high: NDArray[np.int64] = np.maximum.reduceat(stop, first)
    computed: NDArray[np.int64] = np.add.reduceat(stop - start, first)
    again = int((computed - (high - low)).sum())
    prompts = trace.requests.column("prompt_tokens")[ran]
    needed = int((np.minimum(prompts, high) - low).sum())
    return (needed + again) / needed if needed > 0 else None


def _prefix_hit_rate(trace: Trace) -> float | None:
    admitted = ~np.isnan(trace.requests.column("first_scheduled"))
    prompts = int(trace.requests.column("prompt_tokens")[admitted].sum())
    cached = int(trace.requests.column("cached_tokens")[admitted].sum())
    return cached / prompts if prompts else None
