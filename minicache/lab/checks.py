"""What a learner calls beside an exercise: `check`, `use`, `hint`, `reset`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minicache.lab import library
from minicache.lab.checking.cell import CellNotFound, blank_line, cell_source
from minicache.lab.checking.outcome import Outcome, Verdict
from minicache.lab.checking.report import report
from minicache.lab.checking.sandbox import examine
from minicache.lab.course import Exercise, exercise
from minicache.lab.show import Shown, escape, say, show


def check(function: Any) -> Any:
    """Check the function in the cell that defined it; keep the cell in `mycache/` if it passes.

    The whole cell becomes a file, and that file is tested in a fresh process. Returns the function
    to go on with: `function` itself if it passed, else the library's reference.
    """
    item = exercise(function.__name__)
    try:
        outcome = check_source(item, cell_source(function))
    except CellNotFound as error:
        outcome = Outcome(item.name, Verdict.BROKEN, sentence=str(error))
    if outcome.passed:
        show(report(outcome))
        return function
    going_on = library.find(item.name)
    note = f"The lesson goes on with {going_on.source}."
    show(report(replace(outcome, notes=(*outcome.notes, note))))
    return going_on.function


def check_source(item: Exercise, source: str) -> Outcome:
    """Check a file's text; keep it in the learner's library if it passes."""
    blank = blank_line(source, item.name)
    if blank is not None:
        return Outcome(item.name, Verdict.NOT_WRITTEN, sentence=f"still blank: {blank}")
    outcome = examine(item, source)
    return replace(outcome, notes=_keep(item, source)) if outcome.passed else outcome


def _keep(item: Exercise, source: str) -> tuple[str, ...]:
    kept = library.keep(item.name, source)
    notes = [f"In your library: {library.label(item.name)}. {item.unlocks}"]
    if kept.replaced:
        place = f"mycache/{library.EARLIER}/{kept.replaced.name}"
        notes.append(f"Your earlier version was different; it is kept as {place}.")
    return tuple(notes)


def use(name: str) -> Any:
    """The learner's own `name` from `mycache/`, else the library's reference; says which it is."""
    found = library.find(name)
    say(f"{name}: {found.source}.")
    return found.function


def hint(name: str, level: int = 1) -> Shown:
    """A hint for an exercise. Level 1 is a nudge; higher levels say more."""
    item = exercise(name)
    if not 1 <= level <= len(item.hints):
        raise ValueError(f"{name} has hints 1 to {len(item.hints)}, not {level}.")
    more = f'Next: lab.hint("{name}", {level + 1})' if level < len(item.hints) else "The last hint."
    text = f"Hint {level} of {len(item.hints)}: {item.hints[level - 1]}\n{more}"
    return Shown(f"<div>{escape(text).replace(chr(10), '<br>')}</div>", text)


def reset(name: str) -> str:
    """Take one exercise out of the learner's library; its file is kept. Returns a sentence."""
    moved = library.reset(name)
    if moved is None:
        return f"{name} is not in your library: there is nothing to reset."
    place = f"mycache/{library.EARLIER}/{moved.name}"
    return f"{name} is out of your library; its file is kept as {place}."
