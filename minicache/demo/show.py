"""The demo from end to end: the same people before two engines, one comparison, three files."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from minicache.demo import cast, report
from minicache.demo.drive import Watcher, drive
from minicache.demo.interrupt import Interrupt
from minicache.demo.live import LiveView
from minicache.demo.options import Options
from minicache.demo.people import arrange
from minicache.demo.plain import PlainView
from minicache.demo.serving import Opener, Run, Served, open_model, title
from minicache.demo.shown import Played, Shown
from minicache.demo.warm import warm_up

_PLACE = {Run.BEFORE: "1 of 2", Run.AFTER: "2 of 2"}
Idle = Callable[[float], None]


def show(
    options: Options,
    console: Console | None = None,
    opener: Opener = open_model,
    idle: Idle = time.sleep,
) -> int:
    """Run the demo, report on `console` and in files; returns the exit code.

    `opener` makes the engines and `idle(seconds)` passes time: tests give their own.
    """
    options.make_folders()
    console = console or Console()
    shown = Shown()
    with Interrupt() as interrupt:
        for run in Run:
            if interrupt.asked:
                break
            console.out(f"Loading {options.model} and warming up …", highlight=False)
            with opener(options, run) as served:
                _play(shown, run, options, served, _view(console), interrupt, idle)
        shown.interrupted = interrupt.asked
    report.tell(console, options, shown)
    return shown.exit_code()


def _view(console: Console) -> Watcher:
    moving = console.is_terminal and not console.is_dumb_terminal
    return LiveView(console) if moving else PlainView(console)


def _play(
    shown: Shown,
    run: Run,
    options: Options,
    served: Served,
    watcher: Watcher,
    interrupt: Interrupt,
    idle: Idle,
) -> None:
    engine = served.engine
    if not shown.parts:
        encode = cast.encoder(served.tokenizer, served.vocab_size)
        shown.parts = cast.parts(encode, engine.scheduler.config.max_model_len)
    time_per_token = warm_up(engine, shown.parts)
    if run is Run.BEFORE:
        shown.parts = arrange(shown.parts, time_per_token)
    heading = f"{_PLACE[run]} – {title(run, options)}"
    stage = drive(engine, heading, shown.parts, watcher, interrupt, idle)
    pool = engine.pool
    shown.runs[run] = Played(stage, engine.trace, pool.num_free, pool.num_pages)
