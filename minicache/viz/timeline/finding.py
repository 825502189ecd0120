"""What a run shows, in a sentence: who waited longest for a token, and what was in the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from minicache.metrics import PromptClass
from minicache.trace import PhaseKind
from minicache.viz.format import capital, count, duration, number_of
from minicache.viz.timeline.model import Span
from minicache.viz.timeline.run import Run

SHARE = 0.5
"""Something explains a gap when it fills at least this share of it."""


class Cause(Enum):
    """Why the worst gap was long."""

    FREEZE = "freeze"
    """Others' prompts were computed and it was in no step meanwhile."""
    BESIDE = "beside"
    """Others' prompts were computed in the steps it was in."""
    PREEMPTED = "preempted"
    """It lost its pages in between, and had to be computed again."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Finding:
    """The worst gap of a run. Requests are named by their rows."""

    gap: Span
    row: int
    cause: Cause
    sufferers: tuple[int, ...]
    """Who waited through at least half of it, its owner included."""
    culprits: tuple[int, ...]
    """Whose prompts were computed meanwhile."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.gap.stop - self.gap.start


def find(run: Run) -> Finding | None:
    """The worst gap of a run; None when nobody got two tokens."""
    gaps = [float(np.diff(times).max()) if len(times) > 1 else 0.0 for times in run.token_times]
    if not any(gaps):
        return None
    row = int(np.argmax(gaps))
    times = run.token_times[row]
    at = int(np.argmax(np.diff(times)))
    gap = Span(float(times[at]), float(times[at + 1]))
    sufferers = tuple(r for r, t in enumerate(run.token_times) if _suffers(t, gap))
    culprits = _culprits(run, gap, sufferers)
    return Finding(gap, row, _cause(run, row, gap, culprits), sufferers, culprits)


def overlap(
    starts: NDArray[np.float64], stops: NDArray[np.float64], gap: Span
) -> NDArray[np.float64]:
    """Seconds that each of many spans shares with `gap`."""
    return np.maximum(0.0, np.minimum(stops, gap.stop) - np.maximum(starts, gap.start))


def _suffers(times: NDArray[np.float64], gap: Span) -> bool:
    shared = overlap(times[:-1], times[1:], gap)
    return bool(shared.size) and float(shared.max()) >= SHARE * (gap.stop - gap.start)


def _culprits(run: Run, gap: Span, sufferers: Sequence[int]) -> tuple[int, ...]:
    """Whose prefill fills the gap; nobody's, when together they do not fill half of it."""
    items = run.items
    shared = overlap(items.start, items.stop, gap) * items.is_chunk
    seconds = np.bincount(items.request, weights=shared, minlength=len(run.requests))
    seconds[list(sufferers)] = 0.0
    length = gap.stop - gap.start
    if seconds.sum() < SHARE * length:
        return ()
    return tuple(int(row) for row in np.flatnonzero(seconds > 0.02 * length))


def _cause(run: Run, row: int, gap: Span, culprits: Sequence[int]) -> Cause:
    length = gap.stop - gap.start
    lost = (phase.start for phase in run.lives[row] if phase.kind is PhaseKind.PREEMPTED)
    if any(gap.start <= start < gap.stop for start in lost):
        return Cause.PREEMPTED
    if not culprits:
        return Cause.NOTHING
    mine = run.items.by_request.rows(row)
    computing = overlap(run.items.start[mine], run.items.stop[mine], gap).sum()
    return Cause.BESIDE if computing >= SHARE * length else Cause.FREEZE


def focus(run: Run, finding: Finding | None) -> int | None:
    """The request to look at: the one that was in the way, or the longest of the long prompts."""
    culprits = finding.culprits if finding else ()
    if len(culprits) == 1:
        return culprits[0]
    long = [
        row
        for row in culprits or range(len(run.requests))
        if run.metrics[row].prompt_class is PromptClass.LONG and run.metrics[row].ttft_s is not None
    ]
    return max(long, key=lambda row: run.metrics[row].prompt_tokens, default=None)


def headline(run: Run, finding: Finding | None, noun: str) -> str:
    """The finding as one sentence without a full stop."""
    if finding is None:
        return _without_gaps(run)
    waited = duration(finding.seconds, 2)
    if finding.cause is Cause.PREEMPTED:
        name = run.requests[finding.row].id
        return f"{name} loses its pages and waits {waited} for its next token"
    if finding.cause is Cause.NOTHING:
        return f"The longest wait between two tokens is {waited}"
    what = _prompts(run, finding.culprits)
    who = number_of(len(finding.sufferers), noun)
    if finding.cause is Cause.FREEZE:
        verb = "freezes" if len(finding.culprits) == 1 else "freeze"
        return f"{capital(what)} {verb} {who} for {waited}"
    verb = "waits" if len(finding.sufferers) == 1 else "wait"
    return f"Beside {what}, {who} {verb} {waited} for a token"


def _without_gaps(run: Run) -> str:
    tokens = sum(len(times) for times in run.token_times)
    if tokens:
        return "Nobody got a second token, so nobody waited for one"
    return "No token has come out" if run.requests else "Nothing has run yet"


def _prompts(run: Run, rows: Sequence[int]) -> str:
    if len(rows) > 1:
        return number_of(len(rows), "prompt")
    metrics = run.metrics[rows[0]]
    if metrics.prompt_class is PromptClass.LONG:
        return "one long prompt"
    return f"one prompt of {count(metrics.prompt_tokens)} tokens"
