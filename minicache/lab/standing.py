"""How far the learner has got: a line an exercise, read from the library's files."""

from __future__ import annotations

from minicache.lab import library
from minicache.lab.course import LESSONS, Exercise, Lesson
from minicache.lab.show import GOOD, MUTED, STYLE, Shown, cell, escape, table


def progress() -> Shown:
    """Which exercises are in the learner's library, and how many minutes the others take."""
    done = set(library.written())
    return Shown(_html(done), _text(done))


def _summary(done: set[str]) -> str:
    exercises = [item for lesson in LESSONS for item in lesson.exercises]
    left = sum(item.minutes for item in exercises if item.name not in done)
    finished = sum(item.name in done for item in exercises)
    text = f"{finished} of {len(exercises)} exercises are in your library"
    return f"{text}; about {left} minutes of exercises are left." if left else f"{text}. All done."


def _heading(lesson: Lesson, done: set[str]) -> str:
    finished = sum(item.name in done for item in lesson.exercises)
    return f"{lesson.number:02d} {lesson.title}: {finished} of {len(lesson.exercises)}"


def _text(done: set[str]) -> str:
    lines: list[str] = []
    width = max(len(item.name) for lesson in LESSONS for item in lesson.exercises)
    for lesson in LESSONS:
        lines.append(_heading(lesson, done))
        lines += [
            f"  {_mark(item, done)} {item.name.ljust(width)}  {_size(item)}"
            for item in lesson.exercises
        ]
    return "\n".join([*lines, _summary(done)])


def _html(done: set[str]) -> str:
    rows: list[str] = []
    for lesson in LESSONS:
        rows.append(cell(f"<strong>{escape(_heading(lesson, done))}</strong>", "padding-top: 6px;"))
        rows += [_row(item, done) for item in lesson.exercises]
    return f'<div style="{STYLE}">{table(rows, "Progress")}{escape(_summary(done))}</div>'


def _row(item: Exercise, done: set[str]) -> str:
    colour = GOOD if item.name in done else MUTED
    mark = f'<span style="color: {colour};">{_mark(item, done)}</span>'
    return cell(f"{mark} {escape(item.name)}") + cell(_size(item), f"color: {MUTED};")


def _mark(item: Exercise, done: set[str]) -> str:
    return "✓" if item.name in done else "·"


def _size(item: Exercise) -> str:
    return f"{item.minutes:2d} min, difficulty {item.difficulty} of 5"
