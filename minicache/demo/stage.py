"""What a spectator can see of a run, read from the trace: a lane a person, and the last step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from minicache.demo.people import Part
from minicache.engine import Delta
from minicache.request import FinishReason
from minicache.trace import StepRecord, Trace


class Mood(Enum):
    """What a person experiences."""

    AWAY = "not here yet"
    QUEUED = "waiting"
    READING = "being read"
    TALKING = "talking"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(slots=True)
class Lane:
    """One person's request so far. Times are seconds on the engine's clock."""

    part: Part
    mood: Mood = Mood.AWAY
    text: str = ""
    num_computed: int = 0
    num_outputs: int = 0
    last_token: float | None = None
    worst_gap: float = 0.0
    error: str | None = None

    def silence(self, now: float) -> float:
        """Seconds since its last token, while the next one is due; else 0."""
        if self.mood is not Mood.TALKING or self.last_token is None:
            return 0.0
        return max(0.0, now - self.last_token)

    def hear(self, time: float) -> None:
        """Note a token."""
        if self.last_token is not None:
            self.worst_gap = max(self.worst_gap, time - self.last_token)
        self.mood, self.last_token, self.num_outputs = Mood.TALKING, time, self.num_outputs + 1

    def end(self, reason: FinishReason, error: str | None) -> None:
        """Note how it ended."""
        moods = {FinishReason.CANCELLED: Mood.CANCELLED, FinishReason.ERROR: Mood.FAILED}
        self.mood, self.error = moods.get(reason, Mood.DONE), error


class Stage:
    """The lanes of a run, kept up to date from the engine's trace and deltas."""

    def __init__(self, title: str, parts: Sequence[Part], start: float) -> None:
        """`start` is when the run began, on the engine's clock."""
        self.title = title
        self.start = start
        self.lanes = {part.name: Lane(part) for part in parts}
        self.step: StepRecord | None = None
        self._by_number: dict[int, Lane] = {}
        self._items = 0
        self._tokens = 0

    @property
    def open_lanes(self) -> list[Lane]:
        """Those who have asked and not been answered to the end."""
        still = (Mood.QUEUED, Mood.READING, Mood.TALKING)
        return [lane for lane in self.lanes.values() if lane.mood in still]

    def arrive(self, name: str, trace: Trace) -> None:
        """Note that a request was just submitted: the trace's last row is its own."""
        lane, number = self.lanes[name], trace.requests[-1].number
        assert number is not None, "a request that was taken has a number"
        lane.mood = Mood.QUEUED
        self._by_number[number] = lane

    def note(self, trace: Trace, deltas: Iterable[Delta]) -> None:
        """Take in what a step brought."""
        self._note_items(trace)
        for token in trace.tokens[self._tokens :]:
            self._by_number[token.number].hear(token.time)
        self._tokens = len(trace.tokens)
        if len(trace.steps):
            self.step = trace.steps[-1]
        for delta in deltas:
            self._note_delta(delta)

    def _note_items(self, trace: Trace) -> None:
        for item in trace.items[self._items :]:
            lane = self._by_number[item.number]
            lane.num_computed = item.stop
            if lane.mood is Mood.QUEUED:
                lane.mood = Mood.READING
        self._items = len(trace.items)

    def _note_delta(self, delta: Delta) -> None:
        lane = self.lanes[delta.id]
        lane.text += delta.text
        if delta.finish_reason is not None:
            lane.end(delta.finish_reason, delta.error)
