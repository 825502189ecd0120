"""A trace for Perfetto (ui.perfetto.dev) and chrome://tracing: JSON trace events, times in µs.

One track a request: its phases, and inside them its part of every step. Slices of a track must
nest, so a slice is cut where its phase ends; times become whole µs before lengths are taken.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from minicache.trace.phases import Phase, phases
from minicache.trace.records import ItemRecord, RequestRecord, StepRecord

if TYPE_CHECKING:
    from minicache.trace.trace import Trace

ENGINE, REQUESTS = 1, 2
"""The two process ids: steps and counters, then one thread a request."""
Event = dict[str, Any]


def to_perfetto(trace: Trace) -> str:
    """The trace as one JSON object with `traceEvents`; save it and open it in the viewer."""
    events = [*_names(trace), *_engine(trace), *_requests(trace)]
    return json.dumps(
        {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"source": trace.source}},
        separators=(",", ":"),
        allow_nan=False,
    )


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _name(key: str, name: str, process: int, thread: int) -> Event:
    return {"ph": "M", "name": key, "pid": process, "tid": thread, "args": {"name": name}}


def _names(trace: Trace) -> Iterator[Event]:
    yield _name("process_name", "engine", ENGINE, 0)
    yield _name("thread_name", "steps", ENGINE, 1)
    yield _name("process_name", "requests", REQUESTS, 0)
    for row, request in enumerate(trace.requests):
        yield _name("thread_name", request.id, REQUESTS, row + 1)


def _slice(name: str, start: float, stop: float, process: int, thread: int, args: Event) -> Event:
    begin = _us(start)
    return {
        "ph": "X", "name": name, "ts": begin, "dur": max(0, _us(stop) - begin),
        "pid": process, "tid": thread, "args": args,
    }  # fmt: skip


def _instant(name: str, time: float, thread: int) -> Event:
    return {"ph": "i", "name": name, "ts": _us(time), "s": "t", "pid": REQUESTS, "tid": thread}


def _engine(trace: Trace) -> Iterator[Event]:
    """Steps on a track, cut where the next one starts (steps in flight may overlap); counters."""
    previous: StepRecord | None = None
    for step in sorted(trace.steps, key=lambda step: step.t_start):
        if previous is not None:
            yield _step(previous, min(previous.t_end, step.t_start))
        previous = step
        yield from _counters(step)
    if previous is not None:
        yield _step(previous, previous.t_end)


def _step(step: StepRecord, stop: float) -> Event:
    args = {
        "decodes": step.num_decodes,
        "prefill_tokens": step.prefill_tokens,
        "budget": step.budget,
    }
    return _slice(f"step {step.step}", step.t_start, stop, ENGINE, 1, args)


def _counters(step: StepRecord) -> Iterator[Event]:
    pages = {
        "held": step.pages_held,
        "cached": step.pages_cached,
        "free": step.pages_total - step.pages_held - step.pages_cached,
    }
    queue = {"waiting": step.waiting, "running": step.running}
    for name, values in (("KV pages", pages), ("requests", queue)):
        yield {"ph": "C", "name": name, "ts": _us(step.t_end), "pid": ENGINE, "args": values}


def _requests(trace: Trace) -> Iterator[Event]:
    items = _items_by_row(trace)
    first_tokens = _first_tokens(trace)
    times = {step.step: (step.t_start, step.t_end) for step in trace.steps}
    for row, (request, life) in enumerate(zip(trace.requests, phases(trace), strict=True)):
        thread = row + 1
        yield _instant("refused" if request.refused else "arrival", request.arrival, thread)
        if life:
            yield _whole(request, life, thread)
        for phase in life:
            yield _slice(phase.kind.value, phase.start, phase.stop, REQUESTS, thread, {})
        yield from _parts(items[row], times, life, thread)
        if row in first_tokens:
            yield _instant("first token", first_tokens[row], thread)


def _whole(request: RequestRecord, life: list[Phase], thread: int) -> Event:
    args = {
        "prompt_tokens": request.prompt_tokens,
        "cached_tokens": request.cached_tokens,
        "priority": request.priority,
        "client": request.client,
        "reason": request.reason.value if request.reason else "unfinished",
        "error": request.error or "",
    }
    return _slice(request.id, life[0].start, life[-1].stop, REQUESTS, thread, args)


def _parts(
    items: list[ItemRecord],
    times: dict[int, tuple[float, float]],
    life: list[Phase],
    thread: int,
) -> Iterator[Event]:
    """A request's part of each step, cut to the phase in which it starts.

    Where steps in flight overlap, the later one is drawn from the end of the earlier one.
    """
    starts = [phase.start for phase in life]
    busy_until = starts[0] if starts else 0.0
    for item in items:
        start, stop = times[item.step]
        start = max(start, busy_until)
        phase = life[bisect_right(starts, start) - 1]
        busy_until = max(start, min(stop, phase.stop))
        length = item.stop - item.start
        name = "decode" if length == 1 else f"prefill {length}"
        args = {"step": item.step, "start": item.start, "stop": item.stop}
        yield _slice(name, start, busy_until, REQUESTS, thread, args)


def _items_by_row(trace: Trace) -> list[list[ItemRecord]]:
    items: list[list[ItemRecord]] = [[] for _ in range(len(trace.requests))]
    for item in trace.items:
        items[trace.row_of(item.number)].append(item)
    return items


def _first_tokens(trace: Trace) -> dict[int, float]:
    first: dict[int, float] = {}
    for token in trace.tokens:
        first.setdefault(trace.row_of(token.number), token.time)
    return first
