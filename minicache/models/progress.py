"""How a long pull tells how far it is: plain data to a callback, and one that draws a bar."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console


class Progress(NamedTuple):
    """A stage of a pull has done `done` of `total`: bytes, or weights in the stage "convert"."""

    stage: str
    done: int
    total: int


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """A `Report` that tells nobody."""


@contextmanager
def progress_bar(console: Console | None = None) -> Generator[Report]:
    """A `Report` that draws one bar a stage with rich, for as long as the block runs."""
    from rich import progress as rich

    columns = (
        rich.TextColumn("{task.description:>12}"),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TimeRemainingColumn(elapsed_when_finished=True),
    )
    with rich.Progress(*columns, console=console) as bars:
        tasks: dict[str, rich.TaskID] = {}

        def report(progress: Progress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(progress.stage)
            bars.update(tasks[progress.stage], completed=progress.done, total=progress.total)

        yield report
