"""A promise about latency, and which requests kept it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from minicache.metrics.requests import Outcome, PromptClass, RequestMetrics


@dataclass(frozen=True, slots=True)
class Slo:
    """Upper limits in seconds; None promises nothing. A good request meets every limit."""

    ttft_s: float | None = None
    """First token of short and typical prompts, and of long ones unless `ttft_long_s` is given."""
    ttft_long_s: float | None = None
    """First token of prompts over 4,096 tokens."""
    worst_gap_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __post_init__(self) -> None:
        """Raises `ValueError` for a limit that nobody can meet."""
        for field in fields(self):
            limit = getattr(self, field.name)
            if limit is not None and not limit > 0:
                raise ValueError(
                    f"{field.name} is {limit}, but a limit must be above 0 seconds; "
                    "leave it out to promise nothing."
                )

    def met_by(self, request: RequestMetrics) -> bool:
        """Whether it completed within every limit. A missing metric does not meet a limit."""
        is_long = request.prompt_class is PromptClass.LONG and self.ttft_long_s is not None
        limits = (
            (request.ttft_s, self.ttft_long_s if is_long else self.ttft_s),
            (request.worst_gap_s, self.worst_gap_s),
            (request.tpot_s, self.tpot_s),
            (request.e2e_s, self.e2e_s),
        )
        return request.outcome is Outcome.COMPLETED and all(
            limit is None or (value is not None and value <= limit) for value, limit in limits
        )
