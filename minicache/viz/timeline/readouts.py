"""The numbers and sentences around a timeline: what changed, at what price, and from where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minicache.metrics import Outcome, PromptClass, count_outcomes
from minicache.viz.format import change, count, duration, number_of
from minicache.viz.timeline.finding import Cause, Finding
from minicache.viz.timeline.model import Readout
from minicache.viz.timeline.run import Run


class Values(NamedTuple):
    """The three numbers of a run; None where there is none."""

    worst_gap_s: float | None
    first_token_s: float | None
    output_tokens_per_s: float | None


def row_of(run: Run, id: str | None) -> int | None:
    """The row of the request with this id, if the run has it."""
    rows = (row for row, request in enumerate(run.requests) if request.id == id)
    return next(rows, None)


def values(run: Run, found: Finding | None, focus: str | None) -> Values:
    """Worst gap, first token of the request in focus (else the median), tokens a second."""
    row = row_of(run, focus)
    firsts = [metrics.ttft_s for metrics in run.metrics if metrics.ttft_s is not None]
    median = float(np.median(firsts)) if firsts else None
    tokens = sum(len(times) for times in run.token_times)
    return Values(
        worst_gap_s=found.seconds if found else None,
        first_token_s=median if row is None else run.metrics[row].ttft_s,
        output_tokens_per_s=tokens / run.end if run.end > 0 else None,
    )


def readouts(
    run: Run, found: Finding | None, focus: str | None, noun: str, baseline: Values | None
) -> tuple[Readout, ...]:
    """The numbers of a panel, with their change against the first panel's."""
    gap, first, rate = values(run, found, focus)
    changes = [
        "" if before is None or after is None else change(before, after)
        for before, after in zip(baseline or (None,) * 3, (gap, first, rate), strict=True)
    ]
    said = (
        ("none" if gap is None else duration(gap), f"worst gap of {_a(noun)}"),
        ("none" if first is None else duration(first), _first_token_of(run, focus)),
        ("none" if rate is None else f"{_rate(rate)} tok/s", _output_of(run, noun)),
    )
    return tuple(Readout(said[i][0], changes[i], said[i][1]) for i in range(3))


def _output_of(run: Run, noun: str) -> str:
    everybody = number_of(len(run.requests), noun).split(" ")[0]
    return f"output, all {everybody}" if len(run.requests) > 1 else "output"


def _a(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def _rate(rate: float) -> str:
    return count(rate) if rate >= 100 else f"{rate:.{1 if rate >= 1 else 2}f}"


def _first_token_of(run: Run, focus: str | None) -> str:
    row = row_of(run, focus)
    if row is None:
        return "first token, median" if focus is None else f"first token, {focus}"
    is_long = run.metrics[row].prompt_class is PromptClass.LONG
    return "first token, long" if is_long else f"first token, {focus}"


def subline(
    runs: Sequence[Run], found: Sequence[Finding | None], worst: int, focus: str | None
) -> str:
    """What the other runs change, and at what price; for one run, what averages say."""
    if len(runs) == 1:
        return _averages(runs[0], found[0])
    others = [i for i in range(len(runs)) if i != worst]
    best = min(others, key=lambda i: gap.seconds if (gap := found[i]) else 0.0)
    gap = found[best]
    if gap is None:
        return ""
    where = ("Below" if best > worst else "Above") if len(runs) == 2 else f"In “{runs[best].name}”"
    said = f"{where}, the longest wait is {duration(gap.seconds)}."
    return f"{said} {_price(runs[worst], runs[best], focus)}".strip()


def _price(before: Run, after: Run, focus: str | None) -> str:
    """How the request in focus fares, or where there is none, the median request."""
    old, new = (values(run, None, focus).first_token_s for run in (before, after))
    if not old or not new:
        return ""
    what = "The median answer" if focus is None else f"{_whose(before, focus)} answer"
    percent = round(100 * (new / old - 1))
    if percent == 0:
        return f"{what} starts when it did."
    if percent < 0:
        return f"{what} starts {-percent} % earlier, too."
    lower = what[:1].lower() + what[1:] if what.startswith("The ") else what
    return f"The price: {lower} starts {percent} % later."


def _whose(run: Run, focus: str) -> str:
    row = row_of(run, focus)
    is_long = row is not None and run.metrics[row].prompt_class is PromptClass.LONG
    return "The long prompt’s own" if is_long else f"{focus}’s own"


def _averages(run: Run, found: Finding | None) -> str:
    gaps = np.concatenate([np.diff(times) for times in run.token_times] or [np.zeros(0)])
    if not gaps.size or found is None:
        return ""
    half, most = (float(p) for p in np.percentile(gaps, (50, 99)))
    if duration(half) == duration(most):
        return f"Nearly all waits for a token are {duration(half)}."
    said = f"Half of all waits for a token are under {duration(half)}, 99 % under {duration(most)}"
    hidden = found.cause is Cause.FREEZE and most < found.seconds / 5
    return f"{said}: averages hide it." if hidden else f"{said}."


def pace(runs: Sequence[Run]) -> str:
    """How often a token comes while nothing disturbs it: the middle half of all gaps."""
    gaps = [np.diff(times) for run in runs for times in run.token_times]
    pooled = np.concatenate(gaps) if gaps else np.zeros(0)
    if not pooled.size:
        return ""
    low, high = (duration(float(p), 1) for p in np.percentile(pooled, (25, 75)))
    if low == high:
        return high
    number, unit = low.rsplit(" ", 1)
    return f"{number}–{high}" if high.endswith(unit) else f"{low} – {high}"


def sources(runs: Sequence[Run]) -> tuple[str, ...]:
    """Where each run's numbers are from, and how many requests they stand on."""
    texts = list(dict.fromkeys(run.trace.source for run in runs))
    if len(texts) > 1:
        texts = [f"{run.name}: {run.trace.source}" for run in runs]
    lines = [line for text in texts for line in text.split("\n") if line]
    return (*lines, *_denominators(runs))


def _denominators(runs: Sequence[Run]) -> tuple[str, ...]:
    if not any(run.metrics for run in runs):
        return ()
    said = {run.name: str(count_outcomes(run.metrics)) for run in runs}
    if all(m.outcome is Outcome.COMPLETED for run in runs for m in run.metrics):
        counts = [len(run.metrics) for run in runs]
        each = " in each run" if len(runs) > 1 else ""
        if len(set(counts)) == 1:
            return (f"{number_of(counts[0], 'request')}{each}, all completed",)
    if len(set(said.values())) == 1:
        return tuple(set(said.values()))
    return tuple(f"{name}: {counts}" for name, counts in said.items())
