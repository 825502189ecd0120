"""The legend: only what the picture shows."""

from __future__ import annotations

from collections.abc import Callable

from minicache.viz import text
from minicache.viz.svg import Drawing, box
from minicache.viz.timeline.draw_lanes import arrival_mark, end_mark, first_token_mark
from minicache.viz.timeline.layout import MARGIN, WIDTH
from minicache.viz.timeline.model import Ending, Lane, Timeline

_Draw = Callable[[Drawing, float, float], None]


def draw_legend(drawing: Drawing, timeline: Timeline, top: float, hatch: str) -> float:
    """One or more rows below `top`; returns where the next thing may start."""
    x, y = MARGIN, top
    for draw, swatch, words in _entries(timeline, hatch):
        wide = swatch + 6 + text.width(words, 11.5)
        if x + wide > WIDTH - MARGIN:
            x, y = MARGIN, y + 21.0
        draw(drawing, x, y)
        drawing.text(x + swatch + 6, y + 11, words, 11.5, "m")
        x += wide + 20
    return y + 14.0 if x > MARGIN else top


def _entries(timeline: Timeline, hatch: str) -> list[tuple[_Draw, float, str]]:
    """How to draw each entry at (left, top), how wide its swatch is, and what it says."""
    lanes = [lane for panel in timeline.panels for lane in panel.lanes]
    endings = {lane.ending for lane in lanes if lane.end is not None}
    entries: list[tuple[_Draw, float, str]] = []

    def add(present: bool, draw: _Draw, swatch: float, words: str) -> None:
        if present:
            entries.append((draw, swatch, words))

    add(_any(lanes, "waits"), lambda d, x, y: d.path(box(x, y, 20, 14), "wait"), 20, "waiting")
    add(_any(lanes, "chunks"), lambda d, x, y: d.path(box(x, y, 20, 14), "solid"), 20, "prefill")
    add(_any(lanes, "tokens"), _token_swatch, 30, _token_words(timeline))
    add(
        _any(lanes, "preempted"),
        lambda d, x, y: d.path(box(x, y, 20, 14), "preempted", fill=hatch), 20, "preempted",
    )  # fmt: skip
    add(
        any(lane.arrival is not None for lane in lanes),
        lambda d, x, y: d.path(arrival_mark(x + 5, y + 7), "mark", stroke_width=1.4), 10, "arrival",
    )  # fmt: skip
    add(
        any(lane.first_token is not None for lane in lanes),
        lambda d, x, y: d.path(first_token_mark(x + 6, y + 7), "mark", stroke_width=1.5),
        12, "first token",
    )  # fmt: skip
    for ending in Ending:
        add(ending in endings, _end_swatch(ending), 10, ending.value)
    return entries


def _any(lanes: list[Lane], kind: str) -> bool:
    return any(getattr(lane, kind) for lane in lanes)


def _end_swatch(ending: Ending) -> _Draw:
    return lambda drawing, x, y: end_mark(drawing, ending, x + 5, y + 7, 16)


def _token_swatch(drawing: Drawing, x: float, y: float) -> None:
    ticks = box(x, y, 2.6, 14) + box(x + 7, y, 2.6, 14)
    drawing.path(ticks + box(x + 15, y, 15, 14), "decode")


def _token_words(timeline: Timeline) -> str:
    lanes = (lane for panel in timeline.panels for lane in panel.lanes)
    has_band = any(tokens.number > 1 for lane in lanes for tokens in lane.tokens)
    if has_band and timeline.pace:
        return f"token out (band: one every {timeline.pace})"
    return "token out"
