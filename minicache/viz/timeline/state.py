"""From traces to the state of a picture."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from minicache.metrics import Outcome
from minicache.trace import Trace
from minicache.viz.format import capital, count, duration, number_of
from minicache.viz.timeline import finding, strips
from minicache.viz.timeline.finding import Finding
from minicache.viz.timeline.lanes import lane, visible
from minicache.viz.timeline.model import (
    PLOT_WIDTH,
    Bracket,
    Panel,
    Span,
    Strip,
    Timeline,
)
from minicache.viz.timeline.readouts import Values, pace, readouts, row_of, sources, subline, values
from minicache.viz.timeline.run import Run, prepare
from minicache.viz.timeline.selection import selection

MAX_LANES = 40


class View(NamedTuple):
    """What all panels share."""

    window: Span
    focus: str | None
    """The id of the request to look at."""
    noun: str
    lanes: Collection[str]
    """Ids of the requests to draw."""
    hidden: int
    """How many more there are in the window."""


def state(
    traces: Trace | Mapping[str, Trace],
    *,
    noun: str = "request",
    window: tuple[float, float] | None = None,
    step: int | None = None,
    lanes: Sequence[str] | None = None,
    show: Sequence[Strip] = tuple(Strip),
) -> Timeline:
    """What a picture of one trace, or of several under their names, shows.

    `noun` is what to call a request in sentences ('chat'). `window` is in seconds after the first
    arrival, `(0, end)` by default; numbers and headline are of the whole run all the same.
    `step` picks a step of the last trace; `lanes` chooses requests by id; `show` the strips.
    Raises `ValueError` for an empty window or no trace, `KeyError` for a step or id not there.
    """
    named = {"": traces} if isinstance(traces, Trace) else dict(traces)
    if not named:
        raise ValueError("There is no trace to draw; give at least one.")
    return compose([prepare(*pair) for pair in named.items()], noun, window, step, lanes, show)


def compose(
    runs: Sequence[Run],
    noun: str = "request",
    window: tuple[float, float] | None = None,
    step: int | None = None,
    lanes: Sequence[str] | None = None,
    show: Sequence[Strip] = tuple(Strip),
) -> Timeline:
    """`state` for runs that were prepared before: a widget reads a trace only once."""
    span = _window(runs, window)
    found = [finding.find(run) for run in runs]
    worst = max(range(len(runs)), key=lambda i: _seconds(found[i]))
    focus = _focus_id(runs, found, worst)
    felt = [run.requests[gap.row].id for run, gap in zip(runs, found, strict=True) if gap]
    ids = _chosen(runs, span, felt if focus is None else [focus, *felt], lanes)
    view = View(span, focus, noun, frozenset(ids[:MAX_LANES]), max(0, len(ids) - MAX_LANES))
    baseline = values(runs[0], found[0], focus)
    panels = [
        _panel(run, gap, view, baseline if i else None)
        for i, (run, gap) in enumerate(zip(runs, found, strict=True))
    ]
    return Timeline(
        headline=finding.headline(runs[worst], found[worst], noun),
        subline=subline(runs, found, worst, focus),
        panels=tuple(panels),
        start=span.start,
        stop=span.stop,
        pace=pace(runs),
        sources=sources(runs),
        selection=None if step is None else selection(runs[-1], step),
        strips=tuple(strip for strip in show if strip is not Strip.QUEUE or _queues(panels)),
    )


def _window(runs: Sequence[Run], window: tuple[float, float] | None) -> Span:
    if window is None:
        return Span(0.0, max(*(run.end for run in runs), 1e-3))
    if not window[1] > window[0]:
        raise ValueError(
            f"The window ends at {window[1]} s, not after its start at {window[0]} s; "
            "give (start, end) in seconds after the first arrival."
        )
    return Span(*window)


def _seconds(found: Finding | None) -> float:
    return found.seconds if found else 0.0


def _focus_id(runs: Sequence[Run], found: Sequence[Finding | None], worst: int) -> str | None:
    """The request to look at is the same in all panels: the one that explains the worst gap."""
    row = finding.focus(runs[worst], found[worst])
    return None if row is None else runs[worst].requests[row].id


def _queues(panels: Sequence[Panel]) -> bool:
    return any(level.waiting for panel in panels for level in panel.levels)


def _panel(run: Run, found: Finding | None, view: View, baseline: Values | None) -> Panel:
    """One run, with its changes against `baseline`."""
    window, steps = view.window, run.trace.steps
    shown = [row for row, request in enumerate(run.requests) if request.id in view.lanes]
    pixel = (window.stop - window.start) / PLOT_WIDTH
    return Panel(
        title=run.name or capital(number_of(len(run.requests), "request")),
        note=_note(run, view),
        readouts=readouts(run, found, view.focus, view.noun, baseline),
        lanes=tuple(
            lane(run, row, window, pixel, bold=run.requests[row].id == view.focus) for row in shown
        ),
        bars=strips.bars(run, window),
        budget=int(steps.column("budget").min()) if len(steps) else 0,
        levels=strips.levels(run, window),
        total_pages=int(steps.column("pages_total").max(initial=0)),
        end=float(run.step_stops.max(initial=0.0)),
        boundaries=strips.boundaries(run, window),
        gap=_bracket(run, found, shown, window),
    )


def _chosen(
    runs: Sequence[Run], window: Span, needed: Sequence[str], lanes: Sequence[str] | None
) -> list[str]:
    """The ids to draw, the same in all panels: `lanes`, or all, those first that tell most."""
    if lanes is not None:
        known = {request.id for run in runs for request in run.requests}
        for id in lanes:
            if id not in known:
                raise KeyError(f"No run has a request {id!r}; choose from {sorted(known)}.")
        return list(lanes)
    interest: dict[str, float] = {}
    for run in runs:
        for row, request in enumerate(run.requests):
            if visible(run, row, window):
                interest[request.id] = max(interest.get(request.id, 0.0), _interest(run, row))
    return sorted(interest, key=lambda id: (id not in needed, -interest[id]))


def _interest(run: Run, row: int) -> float:
    metrics = run.metrics[row]
    special = metrics.num_preemptions > 0 or metrics.outcome not in (
        Outcome.COMPLETED,
        Outcome.UNFINISHED,
    )
    return (metrics.worst_gap_s or 0.0) + (metrics.ttft_s or 0.0) + 1e3 * special


def _note(run: Run, view: View) -> str:
    """Under the title: in how many steps the prompt in focus was computed."""
    row = row_of(run, view.focus)
    mine = run.items.by_request.rows(row) if row is not None else ()
    chunks = int(run.items.is_chunk[mine].sum()) if row is not None else 0
    note = number_of(len(run.step_starts), "step")
    if row is not None and chunks:
        prompt = f"{count(run.requests[row].prompt_tokens)} tokens of prompt"
        note = f"{prompt} in {number_of(chunks, 'step')}"
    return f"{note}; {view.hidden} more requests not drawn" if view.hidden else note


def _bracket(run: Run, found: Finding | None, shown: Sequence[int], window: Span) -> Bracket | None:
    """The worst gap, if it is to be seen here; with a name where only one request felt it."""
    if found is None or not window.start <= found.gap.start < found.gap.stop <= window.stop:
        return None
    depths = [depth for depth, row in enumerate(shown) if row in found.sufferers]
    if not depths:
        return None
    alone = len(found.sufferers) == 1 and len(run.requests) > 1
    whose = f", {run.requests[found.row].id}" if alone else ""
    return Bracket(*found.gap, f"worst gap {duration(found.seconds)}{whose}", depths[-1])
