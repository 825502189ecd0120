"""The two runs as a table for people: before, after, and how they compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from minicache.demo.frame import seconds
from minicache.demo.numbers import Comparison, Numbers

_MISSING = "–"


class _Row(NamedTuple):
    key: str
    label: str
    show: Callable[[float], str]


def _rate(value: float) -> str:
    return f"{value:.1f} tok/s"


_ROWS = (
    _Row("worst_gap_s", "longest silence of a chat", seconds),
    _Row("ttft_long_s", "first word for the document", seconds),
    _Row("ttft_short_s", "first word for a chat (median)", seconds),
    _Row("itl_p50_s", "between two tokens, p50", seconds),
    _Row("itl_p99_s", "between two tokens, p99", seconds),
    _Row("output_tokens_per_s", "output of all together", _rate),
)


def table(comparison: Comparison) -> RenderableType:
    """One row a metric, and below it how many requests the numbers stand for."""
    ratio = comparison.ratio()
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    rows.add_column("", no_wrap=True)
    for heading in ("before", "after", "after / before"):
        rows.add_column(heading, justify="right", no_wrap=True)
    for row in _ROWS:
        change = ratio[row.key]
        rows.add_row(
            row.label,
            _cell(comparison.before, row),
            _cell(comparison.after, row),
            _MISSING if change is None else f"× {change:.3g}",
        )
    return Group(rows, *_counts(comparison))


def _cell(numbers: Numbers | None, row: _Row) -> str:
    value = None if numbers is None else getattr(numbers, row.key)
    return _MISSING if value is None else row.show(value)


def _counts(comparison: Comparison) -> list[Text]:
    return [
        Text(
            f"{name}: {run.completed} answered, {run.cancelled} cancelled, {run.failed} failed; "
            f"{run.output_tokens} tokens in {seconds(run.duration_s)}",
            style="dim",
        )
        for name, run in (("before", comparison.before), ("after", comparison.after))
        if run is not None
    ]
