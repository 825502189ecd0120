"""The run as lines of text, for a file or a pipe: what happened to whom, then what was said."""

from __future__ import annotations

import textwrap

from rich.console import Console

from minicache.demo.frame import seconds
from minicache.demo.printable import one_line
from minicache.demo.stage import Lane, Mood, Stage
from minicache.engine import Engine

_WIDTH = 79


class PlainView:
    """One line for every change of mood, so that a log stays readable."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: dict[str, Mood] = {}

    def begin(self, stage: Stage, engine: Engine) -> None:
        """Name the run."""
        self._say(f"{stage.title}\n{'-' * len(stage.title)}")
        self._seen = dict.fromkeys(stage.lanes, Mood.AWAY)

    def look(self, stage: Stage, now: float) -> None:
        """Tell what changed since the last look."""
        for name, lane in stage.lanes.items():
            if lane.mood is not self._seen[name]:
                self._seen[name] = lane.mood
                self._say(f"{now - stage.start:7.2f} s  {name}: {_event(lane)}")

    def end(self, stage: Stage, now: float) -> None:
        """Tell the last changes, and what was said to everybody."""
        self.look(stage, now)
        for name, lane in stage.lanes.items():
            self._say(
                textwrap.fill(f"{name}: {one_line(lane.text)}", _WIDTH, subsequent_indent="    ")
            )
        self._say("")

    def _say(self, text: str) -> None:
        self._console.out(text, highlight=False)


def _event(lane: Lane) -> str:
    if lane.mood is Mood.QUEUED:
        return f"arrives with {len(lane.part.prompt):,} tokens"
    if lane.mood is Mood.READING:
        return "is being read, chunk by chunk"
    if lane.mood is Mood.TALKING:
        return "gets the first token"
    silent = f", longest silence {seconds(lane.worst_gap)}" if lane.num_outputs > 1 else ""
    return f"{lane.mood.value}, {lane.num_outputs} tokens{silent}"
