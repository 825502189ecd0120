"""A trace made ready for drawing: columns by request, times from the first arrival on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minicache.metrics import RequestMetrics, measure, token_times, whole
from minicache.trace import Grouped, Phase, RequestRecord, Trace, group, phases


@dataclass(frozen=True, slots=True)
class Items:
    """The parts that requests had in steps, a value an item, in the order of the trace."""

    request: NDArray[np.intp]
    """Row of the request."""
    step: NDArray[Any]
    start: NDArray[np.float64]
    """When its step began and ended, in seconds."""
    stop: NDArray[np.float64]
    first: NDArray[Any]
    """Positions `[first, last)`."""
    last: NDArray[Any]
    is_chunk: NDArray[np.bool_]
    """Prefill: it computes prompt positions, or more than one."""
    by_request: Grouped


@dataclass(frozen=True, slots=True)
class Run:
    """One trace; `zero` is its first arrival, and all times here are after it."""

    name: str
    trace: Trace
    zero: float
    end: float
    requests: list[RequestRecord]
    metrics: list[RequestMetrics]
    lives: list[list[Phase]]
    token_times: list[NDArray[np.float64]]
    items: Items
    step_starts: NDArray[np.float64]
    step_stops: NDArray[np.float64]


def prepare(name: str, trace: Trace) -> Run:
    """Read a trace once."""
    window = whole(trace)
    zero = window.start_s
    starts = trace.steps.column("t_start") - zero
    stops = trace.steps.column("t_end") - zero
    return Run(
        name=name,
        trace=trace,
        zero=zero,
        end=window.duration_s,
        requests=list(trace.requests),
        metrics=measure(trace),
        lives=[[_moved(phase, zero) for phase in life] for life in phases(trace)],
        token_times=[times - zero for times in token_times(trace)],
        items=_items(trace, starts, stops),
        step_starts=starts,
        step_stops=stops,
    )


def _moved(phase: Phase, zero: float) -> Phase:
    return Phase(phase.kind, phase.start - zero, phase.stop - zero)


def _items(trace: Trace, starts: NDArray[np.float64], stops: NDArray[np.float64]) -> Items:
    step = trace.items.column("step")
    place = np.searchsorted(trace.steps.column("step"), step)
    grouped = group(trace, trace.items.column("number"))
    request = np.empty(len(step), dtype=np.intp)
    request[grouped.order] = np.repeat(np.arange(len(trace.requests)), grouped.counts)
    first, last = trace.items.column("start"), trace.items.column("stop")
    prompts = trace.requests.column("prompt_tokens")
    in_prompt = first < prompts[request] if len(prompts) else np.zeros(len(step), dtype=bool)
    return Items(
        request=request,
        step=step,
        start=starts[place] if len(starts) else np.zeros(0),
        stop=stops[place] if len(stops) else np.zeros(0),
        first=first,
        last=last,
        is_chunk=in_prompt | (last - first > 1),
        by_request=grouped,
    )
