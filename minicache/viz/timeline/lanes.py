"""A request's life as a lane: waiting, prefill chunks, tokens, preemptions, its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from minicache.metrics import Outcome
from minicache.trace import PhaseKind
from minicache.viz.format import count, duration
from minicache.viz.timeline.model import (
    THIN,
    TICK_PITCH,
    Chunk,
    Ending,
    Lane,
    Note,
    Span,
    Tokens,
)
from minicache.viz.timeline.run import Run

_ENDINGS = {
    Outcome.COMPLETED: Ending.FINISHED,
    Outcome.CANCELLED: Ending.CANCELLED,
    Outcome.FAILED: Ending.FAILED,
    Outcome.REJECTED: Ending.REFUSED,
}


def lane(run: Run, row: int, window: Span, pixel: float, *, bold: bool) -> Lane:
    """The lane of one request within the window; `pixel` is how many seconds a pixel shows."""
    request, times = run.requests[row], run.token_times[row]
    chunks = _chunks(run, row)
    ending = _ENDINGS.get(run.metrics[row].outcome)
    return Lane(
        label=request.id,
        about=_about(run, row),
        bold=bold,
        arrival=None if request.refused else _inside(request.arrival - run.zero, window),
        first_token=_inside(float(times[0]), window) if len(times) else None,
        end=None if request.finished is None else _inside(request.finished - run.zero, window),
        ending=ending,
        remark=_remark(ending, request.error),
        waits=_waits(run, row, window, pixel),
        preempted=_preempted(run, row, window),
        chunks=_joined(chunks, _alive(run, row, window), pixel),
        tokens=_tokens(times, window, pixel),
        notes=_notes(chunks, _alive(run, row, window)) if bold else (),
    )


def visible(run: Run, row: int, window: Span) -> bool:
    """Whether a request was there within the window."""
    life = run.lives[row]
    start = run.requests[row].arrival - run.zero
    return start <= window.stop and (life[-1].stop if life else start) >= window.start


def _alive(run: Run, row: int, window: Span) -> Span:
    """The window up to the request's end: a step in flight may outlive who was in it."""
    life = run.lives[row]
    return Span(window.start, min(window.stop, life[-1].stop)) if life else window


def _inside(time: float | None, window: Span) -> float | None:
    return time if time is not None and window.start <= time <= window.stop else None


def _clip(start: float, stop: float, window: Span) -> Span | None:
    clipped = Span(max(start, window.start), min(stop, window.stop))
    return clipped if clipped.stop > clipped.start else None


def _remark(ending: Ending | None, error: str | None) -> str:
    if ending is Ending.REFUSED:
        return f"refused: {error}"
    if ending is Ending.FAILED:
        return f"failed: {error}" if error else "failed"
    return "cancelled" if ending is Ending.CANCELLED else ""


def _about(run: Run, row: int) -> str:
    """What a tooltip says about a request."""
    request, metrics = run.requests[row], run.metrics[row]
    facts = [
        f"{request.id}: prompt of {count(request.prompt_tokens)} tokens",
        f"{count(request.cached_tokens)} of them cached" if request.cached_tokens else "",
        f"{count(metrics.output_tokens)} tokens out",
        _fact("first token after", metrics.ttft_s),
        _fact("worst gap", metrics.worst_gap_s),
        f"preempted {metrics.num_preemptions}×" if metrics.num_preemptions else "",
        metrics.outcome.value,
    ]
    return ", ".join(fact for fact in facts if fact)


def _fact(name: str, seconds: float | None) -> str:
    return "" if seconds is None else f"{name} {duration(seconds)}"


def _chunks(run: Run, row: int) -> list[Chunk]:
    """All prefill chunks of a request, numbered in order."""
    items = run.items
    mine = items.by_request.rows(row)
    reached = np.concatenate(([0], np.maximum.accumulate(items.last[mine])))[:-1]
    chunks = mine[items.is_chunk[mine]]
    again = items.last[chunks] <= reached[items.is_chunk[mine]]
    return [
        Chunk(
            start=float(items.start[i]),
            stop=float(items.stop[i]),
            first=int(items.first[i]),
            last=int(items.last[i]),
            ordinal=ordinal,
            number=1,
            again=bool(repeated),
        )
        for ordinal, (i, repeated) in enumerate(zip(chunks, again, strict=True), start=1)
    ]


def _joined(chunks: Iterable[Chunk], window: Span, pixel: float) -> tuple[Chunk, ...]:
    """The chunks within the window, neighbours joined where they are too thin to tell apart."""
    joined: list[Chunk] = []
    for chunk in chunks:
        span = _clip(chunk.start, chunk.stop, window)
        if span is None:
            continue
        chunk = chunk._replace(start=span.start, stop=span.stop)
        if joined and _thin_neighbours(joined[-1], chunk, pixel):
            last = joined[-1]
            joined[-1] = last._replace(stop=chunk.stop, last=chunk.last, number=last.number + 1)
        else:
            joined.append(chunk)
    return tuple(joined)


def _thin_neighbours(left: Chunk, right: Chunk, pixel: float) -> bool:
    touching = right.start - left.stop < pixel and left.last == right.first
    alone = (left.stop - left.start) / left.number
    thin = max(alone, right.stop - right.start) < THIN * pixel
    return touching and thin and left.again == right.again


def _notes(chunks: Sequence[Chunk], window: Span) -> tuple[Note, ...]:
    shown = [chunk for chunk in chunks if _clip(chunk.start, chunk.stop, window)]
    if not shown:
        return ()
    longest = max(shown, key=lambda chunk: chunk.stop - chunk.start)
    about = [shown[0]] if longest is shown[0] else [shown[0], longest]
    return tuple(
        Note(_note(chunk), max(chunk.start, window.start), min(chunk.stop, window.stop))
        for chunk in about
    )


def _note(chunk: Chunk) -> str:
    span = f"[{count(chunk.first)}, {count(chunk.last)})"
    return f"chunk {chunk.ordinal}: {span}, {duration(chunk.stop - chunk.start)}"


def _tokens(times: NDArray[np.float64], window: Span, pixel: float) -> tuple[Tokens, ...]:
    """Ticks, and bands where they are too close to be told apart."""
    times = times[(window.start <= times) & (times <= window.stop)]
    if not times.size:
        return ()
    cuts = np.flatnonzero(np.diff(times) >= TICK_PITCH * pixel) + 1
    firsts = np.concatenate(([0], cuts))
    lasts = np.concatenate((cuts, [times.size])) - 1
    return tuple(
        Tokens(float(times[first]), float(times[last]), int(last - first + 1))
        for first, last in zip(firsts, lasts, strict=True)
    )


def _preempted(run: Run, row: int, window: Span) -> tuple[Span, ...]:
    gone = (phase for phase in run.lives[row] if phase.kind is PhaseKind.PREEMPTED)
    spans = (_clip(phase.start, phase.stop, window) for phase in gone)
    return tuple(span for span in spans if span)


def _waits(run: Run, row: int, window: Span, pixel: float) -> tuple[Span, ...]:
    """Where the request was alive, not preempted, and in no step, if long enough to be seen."""
    life = run.lives[row]
    if not life:
        return ()
    mine = run.items.by_request.rows(row)
    gone = [phase for phase in life if phase.kind is PhaseKind.PREEMPTED]
    starts = np.concatenate((run.items.start[mine], [phase.start for phase in gone]))
    stops = np.concatenate((run.items.stop[mine], [phase.stop for phase in gone]))
    order = np.argsort(starts, kind="stable")
    ends = np.maximum.accumulate(np.concatenate(([life[0].start], stops[order])))
    nexts = np.concatenate((starts[order], [life[-1].stop]))
    free = np.flatnonzero(nexts - ends >= THIN * pixel)
    spans = (_clip(float(ends[i]), float(nexts[i]), window) for i in free)
    return tuple(span for span in spans if span and span.stop - span.start >= THIN * pixel)
