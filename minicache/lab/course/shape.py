"""What a lesson and an exercise are: plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exercise:
    """One function (or class) that the learner writes."""

    name: str
    """The name of the function: also the file in the learner's library."""
    title: str
    minutes: int
    difficulty: int
    """1 (a line or two) to 5 (take a break first)."""
    reference: str
    """Where the library's own version is: `module:name`."""
    unlocks: str
    """What the learner's library can do once this is in it: ends 'Your library can now …'."""
    hints: tuple[str, ...]
    """From a nudge to nearly the answer; the first is also in the lesson, collapsed."""
    seconds: float = 5.0
    """Time limit of one case."""

    def __post_init__(self) -> None:
        """Difficulty is a promise to the reader, so it is kept on the scale."""
        if not 1 <= self.difficulty <= 5:
            raise ValueError(
                f"{self.name}: difficulty is {self.difficulty}, but the scale is 1 to 5."
            )


@dataclass(frozen=True, slots=True)
class Lesson:
    """One notebook of the course."""

    number: int
    stem: str
    """File name without the ending: `01_naive_attention`."""
    title: str
    minutes: int
    tracks: tuple[str, ...]
    """Which of the two short tracks it is on: "scheduling", "kernels"."""
    exercises: tuple[Exercise, ...]
