"""The state of a timeline picture: everything it shows, and nothing it has to work out.

Times are seconds after the run's first arrival. What is too thin to see at this width has already
been merged, so a state is small however long the trace is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

PLOT_WIDTH = 580.0
"""Pixels of the time axis: merging is decided for this width."""
TICK = 2.6
"""A token is a tick this many pixels wide, centred on the time when it was handed over."""
TICK_PITCH = 5.0
"""Tokens closer than this many pixels become a band."""
THIN = 3.0
"""Chunks narrower than this many pixels are joined, and shorter waits are not outlined."""


class Strip(Enum):
    """A curve under the lanes, on the same time axis."""

    TOKENS = "tokens"
    PAGES = "pages"
    QUEUE = "queue"


class Ending(Enum):
    """How a lane ends."""

    FINISHED = "finish"
    CANCELLED = "cancelled"
    FAILED = "failed"
    REFUSED = "refused"


class Span(NamedTuple):
    """From `start` to `stop`."""

    start: float
    stop: float


class Chunk(NamedTuple):
    """Prefill of positions `[first, last)`: a chunk, or several that are too thin to tell apart."""

    start: float
    stop: float
    first: int
    last: int
    ordinal: int
    """Which chunk of its request it is (the first of them), from 1."""
    number: int
    """How many chunks are drawn as this one."""
    again: bool
    """Whether it computes again what a preemption threw away."""


class Note(NamedTuple):
    """A remark that starts under `start`, or ends under `stop` if it is the last one."""

    text: str
    start: float
    stop: float


class Tokens(NamedTuple):
    """Tokens handed over: one (`start` is `stop`), or a band from the first of them to the last."""

    start: float
    stop: float
    number: int


@dataclass(frozen=True, slots=True)
class Lane:
    """One request."""

    label: str
    about: str
    """What a tooltip says."""
    bold: bool = False
    arrival: float | None = None
    """None when it is outside the window; the same for the next two."""
    first_token: float | None = None
    end: float | None = None
    ending: Ending | None = None
    remark: str = ""
    """Said behind the end: why it was refused, that it was cancelled."""
    waits: tuple[Span, ...] = ()
    """Alive and in no step."""
    preempted: tuple[Span, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    tokens: tuple[Tokens, ...] = ()
    notes: tuple[Note, ...] = ()
    """Under the lane: about the first chunk in the window, and about the longest."""


class StepBar(NamedTuple):
    """What a step computed, or the fullest of several steps too thin to tell apart."""

    start: float
    stop: float
    decodes: int
    prefill: int


class Level(NamedTuple):
    """The pool and the queue from `start` on."""

    start: float
    held: int
    cached: int
    waiting: int


class Bracket(NamedTuple):
    """The worst gap."""

    start: float
    stop: float
    label: str
    depth: int
    """How many lanes down the last one lies that felt it."""


class Readout(NamedTuple):
    """A number that matters, its change against the first panel, and what it is."""

    value: str
    change: str
    label: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One run."""

    title: str
    note: str
    readouts: tuple[Readout, ...]
    lanes: tuple[Lane, ...]
    bars: tuple[StepBar, ...]
    budget: int
    """The token limit of a step, where nothing lifts it; 0 when there was no step."""
    levels: tuple[Level, ...]
    total_pages: int
    end: float
    """Where the run's last step ended."""
    boundaries: tuple[float, ...]
    """Step boundaries; empty when they are too close to be seen."""
    gap: Bracket | None


@dataclass(frozen=True, slots=True)
class Selection:
    """A step picked out of the last panel, and what it did."""

    start: float
    stop: float
    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One or several runs on one time axis."""

    headline: str
    """The finding, in a sentence worked out from the data."""
    subline: str
    panels: tuple[Panel, ...]
    start: float
    stop: float
    pace: str
    """How often a token comes while nothing disturbs it: '5–7 ms'; empty when there is no gap."""
    sources: tuple[str, ...]
    """Lines for the corner; the first is where the numbers are from."""
    selection: Selection | None = None
    strips: tuple[Strip, ...] = tuple(Strip)

    @property
    def seconds_per_pixel(self) -> float:
        """Of the time axis."""
        return (self.stop - self.start) / PLOT_WIDTH
