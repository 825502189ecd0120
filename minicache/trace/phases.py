"""The life of a request cut at the scheduler's events: waiting, running, preempted, running, …"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from minicache.trace.records import EventKind, EventRecord, RequestRecord

if TYPE_CHECKING:
    from minicache.trace.trace import Trace


class PhaseKind(Enum):
    """What a request was doing."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"


class Phase(NamedTuple):
    """A stretch of a request's life, `[start, stop)` in seconds; `stop` is the next one's start."""

    kind: PhaseKind
    start: float
    stop: float


_NEXT: Mapping[EventKind, PhaseKind] = {
    EventKind.ADMITTED: PhaseKind.RUNNING,
    EventKind.PREEMPTED: PhaseKind.PREEMPTED,
    EventKind.RESUMED: PhaseKind.RUNNING,
}


def end_of(trace: Trace) -> float:
    """The last moment that the trace knows of, in seconds; 0 when it is empty."""
    columns = (("steps", "t_end"), ("tokens", "time"), ("events", "time"), ("requests", "arrival"))
    ends = [getattr(trace, table).column(name) for table, name in columns]
    return max((float(times.max()) for times in ends if times.size), default=0.0)


def phases(trace: Trace) -> list[list[Phase]]:
    """The phases of every request, in the order of `trace.requests`; none for a refused one.

    They join without gaps from the planned arrival to the end (of the request, or of the trace).
    """
    lives: list[list[EventRecord]] = [[] for _ in range(len(trace.requests))]
    for event in trace.events:
        lives[trace.row_of(event.number)].append(event)
    end = end_of(trace)
    return [
        [] if request.refused else _cut(request, events, end)
        for request, events in zip(trace.requests, lives, strict=True)
    ]


def _cut(request: RequestRecord, events: list[EventRecord], end: float) -> list[Phase]:
    found: list[Phase] = []
    kind, start = PhaseKind.WAITING, request.arrival
    for event in sorted(events, key=lambda event: event.time):
        if event.kind is EventKind.FINISHED:
            break
        found.append(Phase(kind, start, event.time))
        kind, start = _NEXT[event.kind], event.time
    stop = end if request.finished is None else request.finished
    return [*found, Phase(kind, start, max(start, stop))]
