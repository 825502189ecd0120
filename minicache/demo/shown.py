"""What a demo has shown so far: everything that its report is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from minicache.demo import numbers
from minicache.demo.numbers import Comparison
from minicache.demo.people import Part
from minicache.demo.serving import Run
from minicache.demo.stage import Mood, Stage
from minicache.trace import Trace


class Played(NamedTuple):
    """One run, after its end."""

    stage: Stage
    trace: Trace
    free_pages: int
    """Allocatable pages of the pool after the run: all of them, when nothing leaks."""
    num_pages: int


@dataclass(slots=True)
class Shown:
    """The runs that took place, of the same people."""

    parts: Sequence[Part] = ()
    runs: dict[Run, Played] = field(default_factory=dict[Run, Played])
    interrupted: bool = False

    def comparison(self) -> Comparison:
        """The numbers of the runs that took place."""
        found = {run: numbers.measure(it.trace, self.parts) for run, it in self.runs.items()}
        return Comparison(found.get(Run.BEFORE), found.get(Run.AFTER))

    def exit_code(self) -> int:
        """0; 1 when a request failed; 130, as shells expect, after Ctrl-C."""
        return 130 if self.interrupted else int(bool(self.failures()))

    def failures(self) -> list[str]:
        """Why requests failed, a sentence each."""
        lanes = [lane for it in self.runs.values() for lane in it.stage.lanes.values()]
        return [
            f"{lane.part.name}'s request failed: {lane.error}"
            for lane in lanes
            if lane.mood is Mood.FAILED
        ]
