"""One run: people arrive when they planned to, the engine steps, a watcher looks on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from minicache.demo.interrupt import Interrupt
from minicache.demo.people import Part
from minicache.demo.stage import Stage
from minicache.engine import Engine


class Watcher(Protocol):
    """Shows a run to a person."""

    def begin(self, stage: Stage, engine: Engine) -> None:
        """A run starts."""
        ...

    def look(self, stage: Stage, now: float) -> None:
        """Something has changed. `now` is on the engine's clock."""
        ...

    def end(self, stage: Stage, now: float) -> None:
        """The run is over, whatever became of it."""
        ...


def drive(
    engine: Engine,
    title: str,
    parts: Sequence[Part],
    watcher: Watcher,
    interrupt: Interrupt,
    idle: Callable[[float], None],
) -> Stage:
    """Serve `parts` at their arrivals until all are answered, or until `interrupt` is asked.

    `idle(seconds)` passes time while nobody is there to be served. An interrupted run cancels
    whoever is still being served, and so gives back every page.
    """
    stage = Stage(title, parts, engine.clock())
    watcher.begin(stage, engine)
    try:
        _serve(engine, stage, parts, watcher, interrupt, idle)
        _cancel_open(engine, stage)
    finally:
        watcher.end(stage, engine.clock())
    return stage


def _serve(
    engine: Engine,
    stage: Stage,
    parts: Sequence[Part],
    watcher: Watcher,
    interrupt: Interrupt,
    idle: Callable[[float], None],
) -> None:
    coming = deque(sorted(parts, key=lambda part: part.arrival))
    while (coming or engine.has_work) and not interrupt.asked:
        _submit_due(engine, stage, coming, watcher)
        if engine.has_work:
            stage.note(engine.trace, engine.step())
            watcher.look(stage, engine.clock())
        else:
            idle(stage.start + coming[0].arrival - engine.clock())


def _submit_due(engine: Engine, stage: Stage, coming: deque[Part], watcher: Watcher) -> None:
    """Submit everybody whose time has come, with the time they planned as their arrival."""
    while coming and stage.start + coming[0].arrival <= engine.clock():
        part = coming.popleft()
        arrival = stage.start + part.arrival
        engine.submit(part.prompt, part.params, id=part.name, client=part.name, arrival=arrival)
        stage.arrive(part.name, engine.trace)
        watcher.look(stage, engine.clock())


def _cancel_open(engine: Engine, stage: Stage) -> None:
    for lane in stage.open_lanes:
        engine.cancel(lane.part.name)
    while engine.has_work:
        stage.note(engine.trace, engine.step())
