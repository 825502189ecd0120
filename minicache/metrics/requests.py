"""What each request lived through, in seconds.

t0 is the planned arrival, t1 the first token, tn the last. A life is cut at the scheduler's
events, so that queue + prefill + decode + preempted = tn - t0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from minicache.request import FinishReason
from minicache.trace import Phase, PhaseKind, RequestRecord, Trace, group, phases


class Outcome(Enum):
    """How a request counts."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    """Refused before anything was allocated."""
    FAILED = "failed"
    """A step failed for it, it outgrew the pool, or it ended without a single token."""
    UNFINISHED = "unfinished"
    """Alive when the trace ended."""


class PromptClass(Enum):
    """Prompts by length: TTFT is never reported for all of them together only."""

    SHORT = "short"
    """Up to 256 tokens."""
    TYPICAL = "typical"
    """Up to 4,096 tokens."""
    LONG = "long"


def prompt_class(prompt_tokens: int) -> PromptClass:
    """The class of a prompt with so many tokens."""
    if prompt_tokens <= 256:
        return PromptClass.SHORT
    return PromptClass.TYPICAL if prompt_tokens <= 4096 else PromptClass.LONG


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """One request. A time that does not exist for it is None."""

    row: int
    """Its row in `trace.requests`."""
    id: str
    client: str
    outcome: Outcome
    prompt_class: PromptClass
    prompt_tokens: int
    output_tokens: int
    arrival_s: float
    end_s: float | None
    """When it ended, on the trace's clock."""
    ttft_s: float | None
    """t1 - t0, from the planned arrival: waiting in front of the engine counts."""
    ttft_from_sent_s: float | None
    """t1 - the time it really reached the engine."""
    queue_s: float | None
    """t0 to the first admission: the first wait."""
    prefill_s: float | None
    """First admission to t1, without preempted time."""
    decode_s: float | None
    """t1 to tn, without preempted time; what is computed again after a preemption is in here."""
    preempted_s: float
    """Time between preemptions and resumptions, until tn."""
    preempted_before_first_s: float
    """The part of it before t1: ttft = queue + prefill + this."""
    total_wait_s: float | None
    """queue + preempted."""
    e2e_s: float | None
    """tn - t0."""
    tpot_s: float | None
    """(tn - t1) / (n - 1): undefined for one token."""
    worst_gap_s: float | None
    """The longest time between two successive tokens: what a person feels."""
    num_preemptions: int


_ENDS: Mapping[FinishReason, Outcome] = {
    FinishReason.STOP: Outcome.COMPLETED,
    FinishReason.LENGTH: Outcome.COMPLETED,
    FinishReason.CANCELLED: Outcome.CANCELLED,
    FinishReason.KV_CAPACITY: Outcome.FAILED,
    FinishReason.ERROR: Outcome.FAILED,
}


def outcome(request: RequestRecord, num_tokens: int) -> Outcome:
    """How a request counts, given how many tokens it got."""
    if request.refused:
        return Outcome.REJECTED
    if request.reason is None:
        return Outcome.UNFINISHED
    end = _ENDS[request.reason]
    return Outcome.FAILED if end is Outcome.COMPLETED and num_tokens == 0 else end


def token_times(trace: Trace) -> list[NDArray[np.float64]]:
    """The times of each request's tokens, in seconds, in order; a list a request."""
    grouped = group(trace, trace.tokens.column("number"))
    return np.split(trace.tokens.column("time")[grouped.order], grouped.bounds[1:-1])


def measure(trace: Trace) -> list[RequestMetrics]:
    """The metrics of every request, in the order of `trace.requests`."""
    lives = zip(trace.requests, token_times(trace), phases(trace), strict=False)
    return [_measure(row, *life) for row, life in enumerate(lives)]


def _measure(
    row: int, request: RequestRecord, times: NDArray[np.float64], life: list[Phase]
) -> RequestMetrics:
    count = len(times)
    first = float(times[0]) if count else None
    last = float(times[-1]) if count else None
    queue = _minus(request.first_scheduled, request.arrival)
    before = _preempted(life, first)
    preempted = _preempted(life, last)
    decoding = _minus(last, first)
    started = _minus(first, request.first_scheduled)
    return RequestMetrics(
        row=row,
        id=request.id,
        client=request.client,
        outcome=outcome(request, count),
        prompt_class=prompt_class(request.prompt_tokens),
        prompt_tokens=request.prompt_tokens,
        output_tokens=count,
        arrival_s=request.arrival,
        end_s=request.finished,
        ttft_s=_minus(first, request.arrival),
        ttft_from_sent_s=_minus(first, request.sent),
        queue_s=queue,
        prefill_s=_minus(started, before),
        decode_s=_minus(decoding, preempted - before),
        preempted_s=preempted,
        preempted_before_first_s=before,
        total_wait_s=None if queue is None else queue + preempted,
        e2e_s=_minus(last, request.arrival),
        tpot_s=decoding / (count - 1) if decoding is not None and count > 1 else None,
        worst_gap_s=float(np.diff(times).max()) if count > 1 else None,
        num_preemptions=sum(phase.kind is PhaseKind.PREEMPTED for phase in life),
    )


def _minus(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def _preempted(life: list[Phase], until: float | None) -> float:
    """Preempted seconds before `until`, or in the whole life."""
    stops = [
        (phase.start, phase.stop if until is None else min(phase.stop, until))
        for phase in life
        if phase.kind is PhaseKind.PREEMPTED
    ]
    return sum(max(0.0, stop - start) for start, stop in stops)
