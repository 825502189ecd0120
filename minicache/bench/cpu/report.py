"""The rows for people, and for programs."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from importlib.metadata import version
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table

from minicache.bench.cpu.measure import Row
from minicache.hardware import describe


def tables(rows: Sequence[Row], model: str) -> Iterator[Table]:
    """One table a dtype. Times are each side's fastest repeat; a ratio is the median over pairs."""
    for dtype in dict.fromkeys(row.dtype for row in rows):
        made = Table(
            title=f"{model}, {dtype}, {describe(torch.device('cpu'))}; theirs: transformers",
            title_justify="left",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        made.add_column("", no_wrap=True)
        for name in ("ours", "theirs", "floor", "unit", "value", "bar"):
            made.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            if row.dtype == dtype:
                style = "" if row.good else "red"
                made.add_row(row.what, *_numbers(row), _bar(row), style=style)
        yield made


def as_json(rows: Sequence[Row], model: str, command: str) -> dict[str, Any]:
    """Everything needed to judge the numbers, and to make them again."""
    return {
        "model": model,
        "device": describe(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "transformers")}
        | {"python": platform.python_version()},
        "date": date.today().isoformat(),
        "command": command,
        "rows": [asdict(row) | {"good": row.good} for row in rows],
    }


def _numbers(row: Row) -> list[str]:
    cells = [_number(value) for value in (row.ours, row.theirs, row.floor)]
    return [*cells, row.unit, _number(row.value)]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bar(row: Row) -> str:
    if row.bar is None:
        return ""
    return f"{'≤' if row.at_most else '≥'} {row.bar:g} {'✓' if row.good else '✗'}"
