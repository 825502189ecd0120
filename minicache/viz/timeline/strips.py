"""What lies under the lanes: tokens in each step, pages in use, requests waiting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minicache.viz.timeline.model import PLOT_WIDTH, Level, Span, StepBar
from minicache.viz.timeline.run import Run

_COLUMN = 2.0
"""Steps are shown one by one while they are wider than this on average, in pixels."""
_BOUNDARY = 6.0
"""Their boundaries are drawn while they are wider than this."""


def bars(run: Run, window: Span) -> tuple[StepBar, ...]:
    """A bar a step within the window; where steps are too thin, the fullest of each column."""
    shown = _shown(run, window)
    steps = run.trace.steps
    decodes = steps.column("num_decodes")[shown]
    prefill = steps.column("prefill_tokens")[shown]
    starts = np.maximum(run.step_starts[shown], window.start)
    stops = np.minimum(run.step_stops[shown], window.stop)
    kept = _fullest(starts, decodes + prefill, window)
    if len(kept) < len(shown):
        stops = _reach(starts, stops, kept)
        starts = starts[kept]
        decodes, prefill = decodes[kept], prefill[kept]
    columns = (starts, stops, decodes, prefill)
    found = map(StepBar, *(column.tolist() for column in columns))
    return _joined(found, (window.stop - window.start) / PLOT_WIDTH)


def _joined(bars: Iterable[StepBar], pixel: float) -> tuple[StepBar, ...]:
    """Neighbours without prefill joined where they look the same."""
    joined: list[StepBar] = []
    for bar in bars:
        last = joined[-1] if joined else None
        if (
            last
            and not (bar.prefill or last.prefill)
            and bar.decodes == last.decodes
            and bar.start - last.stop < pixel
        ):
            joined[-1] = last._replace(stop=bar.stop)
        else:
            joined.append(bar)
    return tuple(joined)


def boundaries(run: Run, window: Span) -> tuple[float, ...]:
    """Where steps begin, unless that is too close together to be seen."""
    shown = _shown(run, window)
    if len(shown) * _BOUNDARY > PLOT_WIDTH:
        return ()
    edges = np.concatenate((run.step_starts[shown], run.step_stops[shown[-1:]]))
    return tuple(edges[(window.start < edges) & (edges < window.stop)].tolist())


def levels(run: Run, window: Span) -> tuple[Level, ...]:
    """Pages and queue from the start of each step on, changes only; the highest of each column."""
    steps = run.trace.steps
    starts = run.step_starts
    before = max(0, int(np.searchsorted(starts, window.start, side="right")) - 1)
    after = int(np.searchsorted(starts, window.stop, side="right"))
    shown = np.arange(before, after)
    held = steps.column("pages_held")[shown]
    cached = steps.column("pages_cached")[shown]
    waiting = steps.column("waiting")[shown]
    times = np.maximum(starts[shown], window.start)
    kept = _fullest(times, held + cached, window)
    columns = (times, held, cached, waiting)
    found = list(map(Level, *(column[kept].tolist() for column in columns)))
    return tuple(level for i, level in enumerate(found) if i == 0 or level[1:] != found[i - 1][1:])


def _shown(run: Run, window: Span) -> NDArray[np.intp]:
    return np.flatnonzero((run.step_stops > window.start) & (run.step_starts < window.stop))


def _fullest(times: NDArray[np.float64], values: NDArray[Any], window: Span) -> NDArray[np.intp]:
    """Which to keep: all while they are few, else the highest in each column of pixels."""
    columns = int(PLOT_WIDTH / _COLUMN)
    if len(times) <= columns:
        return np.arange(len(times))
    width = (window.stop - window.start) / columns
    column = np.minimum(((times - window.start) / width).astype(np.int64), columns - 1)
    order = np.lexsort((-values, column))
    first = np.diff(column[order], prepend=-1) > 0
    return np.sort(order[first])


def _reach(
    starts: NDArray[np.float64], stops: NDArray[np.float64], kept: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Where each kept bar ends: it also stands for the steps after it that were left out."""
    nexts = np.append(starts[kept[1:]], stops[-1])
    last = np.append(kept[1:], len(stops)) - 1
    return np.minimum(nexts, np.maximum.accumulate(stops)[last])
