"""The learner's library: `mycache/`, one file for each exercise that passed.

It lives beside `lessons/`, or where the environment variable MINICACHE_MYCACHE says. The files are
plain Python: they survive a restart, an upgrade, and being read without this package.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from minicache.lab.checking.judge import load, resolve
from minicache.lab.course import exercise, lesson_of

EARLIER = "earlier"
"""The folder inside the library in which replaced versions are kept."""


def folder() -> Path:
    """Where the library is: MINICACHE_MYCACHE, else `mycache/` beside the nearest `lessons/`."""
    named = os.environ.get("MINICACHE_MYCACHE")
    if named:
        return Path(named)
    here = Path.cwd()
    home = next((p for p in (here, *here.parents) if (p / "lessons").is_dir()), here)
    return home / "mycache"


def path_of(name: str) -> Path:
    """The file of one exercise, whether or not it exists."""
    return folder() / f"{name}.py"


def label(name: str) -> str:
    """What a message calls a file of the library: `mycache/softmax.py`, wherever it is."""
    return f"mycache/{name}.py"


def written() -> list[str]:
    """The exercises in the library, by name."""
    return sorted(path.stem for path in folder().glob("*.py"))


class Kept(NamedTuple):
    """What keeping a file did."""

    replaced: Path | None
    """Where the earlier, different version went; None where there was none."""


def keep(name: str, source: str) -> Kept:
    """Write `source` as the learner's `name`. What differs is moved aside, never lost."""
    lesson = lesson_of(name)
    note = f"# From lesson {lesson.number:02d}, {lesson.title}; kept since every case passed.\n"
    text, target = f"{source.rstrip()}\n\n{note}", path_of(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and target.read_text("utf-8") == text:
        return Kept(None)
    replaced = _move_aside(name) if target.exists() else None
    draft = target.with_suffix(".tmp")
    draft.write_text(text, "utf-8")
    draft.replace(target)
    return Kept(replaced)


def reset(name: str) -> Path | None:
    """Take one exercise out of the library; returns where its file went, None if there was none."""
    exercise(name)  # a wrong name is an error, not 'nothing to do'
    return _move_aside(name) if path_of(name).exists() else None


def _move_aside(name: str) -> Path:
    """Move the file to `earlier/name.1.py`, or the next free number."""
    place = folder() / EARLIER
    place.mkdir(exist_ok=True)
    number = 1
    while (place / f"{name}.{number}.py").exists():
        number += 1
    return path_of(name).rename(place / f"{name}.{number}.py")


class Found(NamedTuple):
    """A function to go on with, and whose it is."""

    function: Any
    source: str
    """A few words for the reader: 'yours, from mycache/softmax.py'."""


def find(name: str) -> Found:
    """The learner's own version of `name`, else the library's. Raises `UnknownExercise`."""
    item = exercise(name)
    if not path_of(name).exists():
        return Found(resolve(item.reference), f"the reference: yours is not in {label(name)} yet")
    try:
        module = load(path_of(name), f"mycache_{name}")
        return Found(getattr(module, name), f"yours, from {label(name)}")
    except Exception as error:
        why = f"{label(name)} no longer loads ({type(error).__name__}: {error})"
        return Found(resolve(item.reference), f"the reference: {why}")
