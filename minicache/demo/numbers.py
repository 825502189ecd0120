"""The numbers of a run, by the definitions of minicache.metrics; and two runs beside each other."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np

from minicache import metrics
from minicache.demo.people import Part
from minicache.metrics import Outcome, RequestMetrics
from minicache.trace import Trace


@dataclass(frozen=True, slots=True)
class Numbers:
    """One run. A time that nobody lived to see is None."""

    worst_gap_s: float | None
    """The longest wait between two tokens of a chat."""
    ttft_long_s: float | None
    """From the document's arrival to the first token of its answer."""
    ttft_short_s: float | None
    """The same for a chat: the median."""
    itl_p50_s: float | None
    """Between two successive tokens of a request, all requests pooled."""
    itl_p99_s: float | None
    output_tokens_per_s: float | None
    """Tokens of all requests, over the time from the first arrival to the end."""
    duration_s: float
    output_tokens: int
    completed: int
    cancelled: int
    failed: int
    chats_during_long: int
    """Chats that were being answered when the document arrived."""


_COMPARED = (
    "worst_gap_s",
    "ttft_long_s",
    "ttft_short_s",
    "itl_p50_s",
    "itl_p99_s",
    "output_tokens_per_s",
    "duration_s",
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs of the same arrivals; None is a run that did not take place."""

    before: Numbers | None
    after: Numbers | None

    def ratio(self) -> dict[str, float | None]:
        """After / before, number by number; None where either is missing or before is 0."""
        return {key: _over(_get(self.after, key), _get(self.before, key)) for key in _COMPARED}

    def as_dict(self) -> dict[str, dict[str, float | int | None]]:
        """Plain values for JSON, under `before`, `after` and `ratio`."""
        nothing = dict.fromkeys(field.name for field in fields(Numbers))
        return {
            "before": asdict(self.before) if self.before else nothing,
            "after": asdict(self.after) if self.after else nothing,
            "ratio": self.ratio(),
        }


def measure(trace: Trace, parts: Sequence[Part]) -> Numbers:
    """The numbers of a run of `parts`, whose names are the ids of its requests."""
    requests = metrics.measure(trace)
    by_name = {request.id: request for request in requests}
    chats = [by_name[part.name] for part in parts if not part.is_long and part.name in by_name]
    long = [by_name[part.name] for part in parts if part.is_long and part.name in by_name]
    gaps = metrics.distribution(
        gap for times in metrics.token_times(trace) for gap in np.diff(times).tolist()
    )
    duration = metrics.whole(trace).duration_s
    tokens = sum(request.output_tokens for request in requests)
    return Numbers(
        worst_gap_s=max(_known(chat.worst_gap_s for chat in chats), default=None),
        ttft_long_s=max(_known(request.ttft_s for request in long), default=None),
        ttft_short_s=_median(_known(chat.ttft_s for chat in chats)),
        itl_p50_s=gaps.p50,
        itl_p99_s=gaps.p99,
        output_tokens_per_s=tokens / duration if duration > 0 else None,
        duration_s=duration,
        output_tokens=tokens,
        completed=_count(requests, Outcome.COMPLETED),
        cancelled=_count(requests, Outcome.CANCELLED),
        failed=_count(requests, Outcome.FAILED),
        chats_during_long=sum(_talks_at(chat, long) for chat in chats),
    )


def _talks_at(chat: RequestMetrics, long: Sequence[RequestMetrics]) -> bool:
    """Whether a chat had its first token, and not its last, when the document arrived."""
    if not long or chat.ttft_s is None or chat.e2e_s is None:
        return False
    first, last = chat.arrival_s + chat.ttft_s, chat.arrival_s + chat.e2e_s
    return first <= long[0].arrival_s <= last


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _count(requests: Sequence[RequestMetrics], outcome: Outcome) -> int:
    return sum(request.outcome is outcome for request in requests)


def _get(numbers: Numbers | None, key: str) -> float | None:
    return None if numbers is None else getattr(numbers, key)


def _over(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or not bottom else top / bottom
