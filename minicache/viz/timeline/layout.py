"""Where things go, in pixels."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from typing import NamedTuple

from minicache.viz.timeline.model import PLOT_WIDTH, Lane, Timeline

WIDTH = 700.0
MARGIN = 16.0
LEFT = 104.0
RIGHT = LEFT + PLOT_WIDTH
LABELS = LEFT - 12
"""Labels of lanes and strips end here."""
BETWEEN = 34.0
"""Between panels."""
MARKER_ROOM = 12.0
"""Above a lane that has markers."""
NOTES = 16.0
"""Under a lane that has notes."""
BRACKET = 22.0
STRIP = 32.0
CAPTION = 14.0
STRIP_GAP = 9.0


class LaneStyle(NamedTuple):
    """How lanes are drawn: the more there are, the closer they lie."""

    pitch: float
    bar: float
    type_size: float
    roomy: bool
    """Markers above the bar, and text in it."""


def lane_style(number: int) -> LaneStyle:
    """For so many lanes."""
    if number <= 6:
        return LaneStyle(25, 15, 12, roomy=True)
    if number <= 16:
        return LaneStyle(19, 12, 11.5, roomy=False)
    return LaneStyle(14, 9, 11, roomy=False)


class Scale:
    """From seconds to pixels."""

    def __init__(self, timeline: Timeline) -> None:
        self.start = timeline.start
        self.stop = timeline.stop
        self.pixels = PLOT_WIDTH / (timeline.stop - timeline.start)

    def x(self, seconds: float) -> float:
        """Where a time is."""
        return LEFT + (seconds - self.start) * self.pixels

    def ticks(self, most: int = 6) -> list[tuple[float, str]]:
        """Round times on the axis, with labels in one unit."""
        step = round_step((self.stop - self.start) / most)
        first = -floor(-self.start / step)
        times: list[float] = []
        while (time := (first + len(times)) * step) <= self.stop + 1e-9 * step:
            times.append(time)
        most_time = max(abs(self.start), abs(self.stop))
        return [(time, _label(time, step, most_time)) for time in times]


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5 × 10^k that is at least `least`."""
    power = 10.0 ** floor(log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def _label(time: float, step: float, most: float) -> str:
    if abs(time) < step / 2:
        return "0"
    units = ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs"))
    scale, unit = next((scale, unit) for least, scale, unit in units if most >= least)
    decimals = max(0, -floor(log10(step * scale) + 1e-9))
    return f"{time * scale:,.{decimals}f} {unit}"


class LanePlace(NamedTuple):
    """Where a lane's bar is."""

    top: float
    centre: float
    bottom: float


def place_lanes(lanes: Sequence[Lane], top: float) -> tuple[list[LanePlace], float]:
    """The places of lanes below `top`, and where the next thing may start."""
    style = lane_style(len(lanes))
    places: list[LanePlace] = []
    for lane in lanes:
        marked = lane.arrival is not None or lane.first_token is not None
        top += MARKER_ROOM if style.roomy and marked else 0.0
        bar = top + (style.pitch - style.bar) / 2
        places.append(LanePlace(bar, bar + style.bar / 2, bar + style.bar))
        top += style.pitch + (NOTES if lane.notes else 0.0)
    return places, top
