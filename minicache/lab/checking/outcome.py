"""What came of a check: plain data that travels from the judge's process as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Verdict(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_WRITTEN = "not written yet"
    BROKEN = "did not run"
    """The file could not be imported, or the process that ran it died."""


class Fault(Enum):
    """What kind of mistake a failing case shows."""

    TYPE = "wrong type"
    SHAPE = "wrong shape"
    DTYPE = "wrong dtype"
    VALUES = "wrong values"
    CHANGED_INPUT = "changes its input"
    EXCEPTION = "raises an exception"
    TIME = "does not finish"
    MEMORY = "needs too much memory"
    CRASH = "crashes Python"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case. `fault` is None where it passed; the texts are filled where it did not."""

    name: str
    about: str = ""
    fault: Fault | None = None
    sentence: str = ""
    """What is wrong, in one sentence."""
    inputs: tuple[tuple[str, str], ...] = ()
    expected: str = ""
    got: str = ""
    where: str = ""
    """Where expected and got differ, or the line that raised."""
    size: int = 0
    """Numbers in the inputs: the smallest failing case is shown."""

    def to_json(self) -> dict[str, Any]:
        """A dictionary for `json.dumps`."""
        return asdict(self) | {"fault": self.fault.value if self.fault else None}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CaseResult:
        """The inverse of `to_json`."""
        fields = dict(data)
        fields["fault"] = Fault(data["fault"]) if data["fault"] else None
        fields["inputs"] = tuple((name, text) for name, text in data["inputs"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a check."""

    name: str
    verdict: Verdict
    cases: tuple[CaseResult, ...] = ()
    sentence: str = ""
    """Why it did not run, or what is still blank."""
    where: str = ""
    printed: str = ""
    """The last lines that the learner's code printed."""
    notes: tuple[str, ...] = ()
    """What happened to the library: kept, already there, what it can do now."""

    @property
    def passed(self) -> bool:
        """Whether every case passed."""
        return self.verdict is Verdict.PASSED

    @property
    def num_passed(self) -> int:
        """How many cases passed."""
        return sum(case.fault is None for case in self.cases)

    @property
    def smallest_failure(self) -> CaseResult | None:
        """The failing case with the fewest numbers in its inputs; the earlier one of equals."""
        failing = [c for c in self.cases if c.fault and c.fault is not Fault.NOT_RUN]
        return min(failing, key=lambda case: case.size, default=None)
