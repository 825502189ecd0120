"""The course as data: which lessons there are, and what is written in them."""

from __future__ import annotations

from minicache.lab.course.lesson_00 import LESSON as LESSON_00
from minicache.lab.course.lesson_01 import LESSON as LESSON_01
from minicache.lab.course.shape import Exercise, Lesson

LESSONS = (LESSON_00, LESSON_01)

__all__ = ["LESSONS", "Exercise", "Lesson", "UnknownExercise", "exercise", "lesson_of"]


class UnknownExercise(LookupError):
    """No exercise has this name. The message lists those that there are."""


def exercise(name: str) -> Exercise:
    """The exercise of this name. Raises `UnknownExercise`."""
    return _find(name)[1]


def lesson_of(name: str) -> Lesson:
    """The lesson in which this exercise is written. Raises `UnknownExercise`."""
    return _find(name)[0]


def _find(name: str) -> tuple[Lesson, Exercise]:
    for lesson in LESSONS:
        for item in lesson.exercises:
            if item.name == name:
                return lesson, item
    known = ", ".join(item.name for lesson in LESSONS for item in lesson.exercises)
    raise UnknownExercise(f"No exercise is called {name!r}. The exercises are: {known}.")
