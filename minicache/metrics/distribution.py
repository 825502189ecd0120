"""Many values in few numbers. Percentiles are numpy's linear ones; nothing is ever NaN."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of `count` values; all None when there is none. The unit is in the name of the field."""

    count: int
    undefined: int
    """How many requests of the same population have no such value; they are left out."""
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


def distribution(values: Iterable[float | None]) -> Distribution:
    """Summarise values; None is left out and counted."""
    everything = list(values)
    defined = np.array([value for value in everything if value is not None], dtype=np.float64)
    undefined = len(everything) - defined.size
    if not defined.size:
        return Distribution(0, undefined)
    p50, p90, p99 = (float(p) for p in np.percentile(defined, (50, 90, 99)))
    return Distribution(
        count=int(defined.size),
        undefined=undefined,
        mean=float(defined.mean()),
        p50=p50,
        p90=p90,
        p99=p99,
        max=float(defined.max()),
    )
