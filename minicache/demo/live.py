"""The run as a moving picture, for a terminal."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.live import Live

from minicache.demo import frame
from minicache.demo.stage import Stage
from minicache.engine import Engine

_PICTURES_PER_SECOND = 8
_MOST_TEXT_LINES = 4


class LiveView:
    """Draws from a thread of its own: a person sees how long the engine has been silent.

    Drawing takes a few milliseconds a picture from both runs alike.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def begin(self, stage: Stage, engine: Engine) -> None:
        """Start the picture of a run."""
        self._live = Live(
            get_renderable=lambda: self._picture(stage, engine.clock()),
            console=self._console,
            refresh_per_second=_PICTURES_PER_SECOND,
        )
        self._live.start()

    def look(self, stage: Stage, now: float) -> None:
        """Nothing to do: the next picture shows it."""

    def end(self, stage: Stage, now: float) -> None:
        """Draw the last picture and leave it on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _picture(self, stage: Stage, now: float) -> RenderableType:
        width = min(self._console.width, 120)
        room = (self._console.height - 1 - frame.height(len(stage.lanes), 0)) // len(stage.lanes)
        return frame.frame(stage, now, width, max(1, min(_MOST_TEXT_LINES, room)))
