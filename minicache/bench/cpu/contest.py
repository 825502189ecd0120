"""Two engines do the same work in turn, in one process: only their ratio is claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple, Protocol


class Served(NamedTuple):
    """A queue of requests that was worked off."""

    seconds: float
    steps: int
    """Forward passes."""


class Contestant(Protocol):
    """An engine under test. Nothing ends early: end-of-sequence tokens are ignored."""

    def prefill(self, prompt: Sequence[int]) -> float:
        """Seconds to the first token."""
        ...

    def decode(self, prompt: Sequence[int], count: int) -> float:
        """Seconds a token, from the first to the last of `count`, greedy."""
        ...

    def serve(self, prompts: Sequence[Sequence[int]], counts: Sequence[int]) -> Served:
        """Answer all prompts, the i-th with `counts[i]` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Duel:
    """Seconds of both, one entry a repeat; repeat i of the two ran one after the other."""

    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """How many times faster we are: the median over the repeats."""
        return median(t / o for o, t in zip(self.ours, self.theirs, strict=True))

    @property
    def best(self) -> tuple[float, float]:
        """The fastest repeat of each: what a quiet machine would show."""
        return min(self.ours), min(self.theirs)


def alternate(ours: Callable[[], float], theirs: Callable[[], float], repeats: int) -> Duel:
    """Warm both up, then run them in turn; who begins changes from repeat to repeat."""
    ours()
    theirs()
    first: list[float] = []
    second: list[float] = []
    for repeat in range(repeats):
        turns = [(ours, first), (theirs, second)]
        for run, times in turns if repeat % 2 == 0 else reversed(turns):
            times.append(run())
    return Duel(first, second)
