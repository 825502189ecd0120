"""What a mutant is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake: `changes` replace text in the lesson's solution, each found there once."""

    name: str
    changes: tuple[tuple[str, str], ...]

    def apply(self, solution: str) -> str:
        """The solution with the mistake in it."""
        for right, wrong in self.changes:
            assert solution.count(right) == 1, f"{self.name}: {right!r} is not in the solution once"
            solution = solution.replace(right, wrong)
        return solution


def mutant(name: str, right: str, wrong: str, *more: tuple[str, str]) -> Mutant:
    """A mutant with its first change spelled out."""
    return Mutant(name, ((right, wrong), *more))
