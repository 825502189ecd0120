"""Who got how much. Service is counted in positions computed for the first time: a prompt token or
an output token each count one, a token computed again after a preemption counts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minicache.metrics.window import Window
from minicache.trace import PhaseKind, Trace, group, phases, request_rows


def progress(trace: Trace) -> NDArray[np.int64]:
    """New positions of each item, `(items,)`: those past everything its request had computed."""
    grouped = group(trace, trace.items.column("number"))
    start = trace.items.column("start").astype(np.int64)[grouped.order]
    stop = trace.items.column("stop").astype(np.int64)[grouped.order]
    owner = np.repeat(np.arange(len(trace.requests)), grouped.counts)
    # One running maximum for all requests: each is lifted above everything of the one before.
    lift = owner * (int(stop.max(initial=0)) + 1)
    reached = np.maximum.accumulate(stop + lift) - lift
    before = np.where(np.diff(owner, prepend=-1) > 0, 0, np.roll(reached, 1))
    new = np.empty_like(stop)
    new[grouped.order] = np.maximum(0, stop - np.maximum(start, before))
    return new


def served_tokens(trace: Trace, window: Window) -> dict[str, int]:
    """Tokens served to each client by steps that ended within the window."""
    ends = _item_ends(trace)
    inside = (window.start_s <= ends) & (ends <= window.end_s)
    served = dict.fromkeys(trace.requests.texts("client"), 0)
    clients = trace.requests.texts("client")
    rows = request_rows(trace, trace.items.column("number"))
    sums = np.bincount(rows, weights=progress(trace) * inside, minlength=len(clients))
    for client, tokens in zip(clients, sums, strict=True):
        served[client] += int(tokens)
    return served


def jain_index(served: Mapping[str, float]) -> float | None:
    """(Σx)² / (n Σx²): 1 when all got the same, 1/n when one got everything; None for nothing.

    Jain, Chiu and Hawe, "A Quantitative Measure of Fairness", 1984.
    """
    values = np.array(list(served.values()), dtype=np.float64)
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else None


def largest_service_gap(trace: Trace, window: Window) -> float | None:
    """The most tokens by which one client was served more than another while both had requests
    waiting, over any stretch of such time. None when two clients never waited together.

    Compares every pair of clients. Sheng et al., "Fairness in Serving Large Language Models", 2024.
    """
    starts = trace.steps.column("t_start")
    inside = (window.start_s <= starts) & (trace.steps.column("t_end") <= window.end_s)
    served, backlog = _service(trace), _backlog(trace, starts)
    gaps = [
        _pair_gap(served[a] - served[b], backlog[a] & backlog[b] & inside)
        for a, b in combinations(served, 2)
    ]
    return max((gap for gap in gaps if gap is not None), default=None)


def _item_ends(trace: Trace) -> NDArray[np.float64]:
    return trace.steps.column("t_end")[_step_rows(trace)]


def _step_rows(trace: Trace) -> NDArray[np.intp]:
    """The row in `trace.steps` of each item; steps are written in order."""
    return np.searchsorted(trace.steps.column("step"), trace.items.column("step"))


def _service(trace: Trace) -> dict[str, NDArray[np.int64]]:
    """Tokens that each step served to each client, `(steps,)`."""
    new, steps = progress(trace), _step_rows(trace)
    clients = np.array(trace.requests.texts("client"), dtype=object)
    owners = clients[request_rows(trace, trace.items.column("number"))] if new.size else clients[:0]
    return {
        client: np.bincount(
            steps[owners == client], new[owners == client], minlength=len(trace.steps)
        ).astype(np.int64)
        for client in dict.fromkeys(clients.tolist())
    }


def _backlog(trace: Trace, times: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Whether each client had a request waiting or preempted at each of the times."""
    backlog = {
        client: np.zeros(len(times), dtype=bool) for client in trace.requests.texts("client")
    }
    for request, life in zip(trace.requests, phases(trace), strict=True):
        for phase in life:
            if phase.kind is not PhaseKind.RUNNING:
                backlog[request.client] |= (phase.start <= times) & (times < phase.stop)
    return backlog


def _pair_gap(difference: NDArray[np.int64], both: NDArray[Any]) -> float | None:
    """The widest swing of a running sum over unbroken stretches of `both`."""
    if not both.any():
        return None
    edges = np.flatnonzero(np.diff(both.astype(np.int8), prepend=0, append=0))
    gaps = [
        _swing(difference[start:stop]) for start, stop in zip(edges[::2], edges[1::2], strict=True)
    ]
    return max(gaps)


def _swing(difference: NDArray[np.int64]) -> float:
    total = np.concatenate(([0], np.cumsum(difference)))
    return float(total.max() - total.min())
