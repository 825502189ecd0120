"""A trace in one page of numbers, each with the denominators it stands on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minicache.metrics.distribution import Distribution, distribution
from minicache.metrics.fairness import jain_index, largest_service_gap, served_tokens
from minicache.metrics.occupancy import PoolUse, pool_use
from minicache.metrics.requests import (
    Outcome,
    PromptClass,
    RequestMetrics,
    measure,
    token_times,
)
from minicache.metrics.slo import Slo
from minicache.metrics.window import Window, whole
from minicache.metrics.work import Work, work
from minicache.trace import Trace


@dataclass(frozen=True, slots=True)
class Counts:
    """The denominators: how many requests ended how. Print them with every table."""

    completed: int
    cancelled: int
    rejected: int
    failed: int
    unfinished: int
    excluded: int
    """Not counted above: they arrived or ended outside the window."""

    def __str__(self) -> str:
        """In words, for the line under a table."""
        always = f"{self.completed} completed, {self.cancelled} cancelled, "
        always += f"{self.rejected} rejected, {self.failed} failed"
        more = {"unfinished": self.unfinished, "outside the window": self.excluded}
        return always + "".join(f", {count} {name}" for name, count in more.items() if count)


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Time to first token of the completed requests of one prompt class, and its parts."""

    ttft_s: Distribution
    ttft_from_sent_s: Distribution
    """Without the wait in front of the engine."""
    queue_s: Distribution
    prefill_s: Distribution


@dataclass(frozen=True, slots=True)
class Summary:
    """The metrics of a trace within a window. Latencies are of completed requests."""

    source: str
    window: Window
    counts: Counts
    first_token: Mapping[PromptClass, FirstToken]
    """By prompt class; a class without requests has empty distributions."""
    first_token_all: FirstToken
    """All classes pooled: mind the mix."""
    itl_s: Distribution
    """Every gap between successive tokens, pooled over requests."""
    worst_gap_s: Distribution
    """One value a request: its longest gap."""
    tpot_s: Distribution
    """One value a request: its mean gap."""
    e2e_s: Distribution
    total_wait_s: Distribution
    """Queue and preempted time."""
    preempted_s: Distribution
    output_tokens_per_s: float | None
    """Every token handed over within the window, whatever became of its request."""
    requests_per_s: float | None
    """Completed ones."""
    goodput_per_s: float | None
    """Completed requests a second that met the SLO; None without an SLO."""
    good: int | None
    pool: PoolUse
    work: Work
    served_tokens: Mapping[str, int]
    """By client."""
    jain_index: float | None
    largest_service_gap_tokens: float | None


def summarize(trace: Trace, slo: Slo | None = None, window: Window | None = None) -> Summary:
    """Every metric of a trace; by default over all of it. Nothing in it is NaN."""
    window = whole(trace) if window is None else window
    everyone = measure(trace)
    requests = [request for request in everyone if window.covers(request)]
    done = [request for request in requests if request.outcome is Outcome.COMPLETED]
    good = None if slo is None else sum(slo.met_by(request) for request in done)
    served = served_tokens(trace, window)

    def over(value: Callable[[RequestMetrics], float | None]) -> Distribution:
        return distribution(map(value, done))

    return Summary(
        source=trace.source,
        window=window,
        counts=count_outcomes(requests, excluded=len(everyone) - len(requests)),
        first_token={kind: _first_token(done, kind) for kind in PromptClass},
        first_token_all=_first_token(done, None),
        itl_s=inter_token_latency(trace, done),
        worst_gap_s=over(lambda request: request.worst_gap_s),
        tpot_s=over(lambda request: request.tpot_s),
        e2e_s=over(lambda request: request.e2e_s),
        total_wait_s=over(lambda request: request.total_wait_s),
        preempted_s=over(lambda request: request.preempted_s),
        output_tokens_per_s=_rate(_tokens_inside(trace, window), window),
        requests_per_s=_rate(len(done), window),
        goodput_per_s=None if good is None else _rate(good, window),
        good=good,
        pool=pool_use(trace, window),
        work=work(trace, window),
        served_tokens=served,
        jain_index=jain_index(served),
        largest_service_gap_tokens=largest_service_gap(trace, window),
    )


def inter_token_latency(trace: Trace, requests: Sequence[RequestMetrics]) -> Distribution:
    """The pooled gaps of `requests`: n - 1 for n tokens; requests without a gap are counted."""
    times = token_times(trace)
    gaps = [np.diff(times[request.row]) for request in requests if request.output_tokens > 1]
    pooled = distribution(np.concatenate(gaps).tolist() if gaps else ())
    return Distribution(
        pooled.count, len(requests) - len(gaps),
        pooled.mean, pooled.p50, pooled.p90, pooled.p99, pooled.max,
    )  # fmt: skip


def _first_token(done: Sequence[RequestMetrics], kind: PromptClass | None) -> FirstToken:
    chosen = [request for request in done if kind in (None, request.prompt_class)]
    return FirstToken(
        ttft_s=distribution(request.ttft_s for request in chosen),
        ttft_from_sent_s=distribution(request.ttft_from_sent_s for request in chosen),
        queue_s=distribution(request.queue_s for request in chosen),
        prefill_s=distribution(request.prefill_s for request in chosen),
    )


def count_outcomes(requests: Iterable[RequestMetrics], excluded: int = 0) -> Counts:
    """How many requests ended how; `excluded` says how many more there were."""
    found = Counter(request.outcome for request in requests)
    return Counts(
        completed=found[Outcome.COMPLETED],
        cancelled=found[Outcome.CANCELLED],
        rejected=found[Outcome.REJECTED],
        failed=found[Outcome.FAILED],
        unfinished=found[Outcome.UNFINISHED],
        excluded=excluded,
    )


def _tokens_inside(trace: Trace, window: Window) -> int:
    times = trace.tokens.column("time")
    return int(((window.start_s <= times) & (times <= window.end_s)).sum())


def _rate(count: int, window: Window) -> float | None:
    return count / window.duration_s if window.duration_s > 0 else None
