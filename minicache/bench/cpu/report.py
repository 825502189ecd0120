"""The rows for people, and for programs."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from importlib.metadata import version
from typing import Any

import torch
from rich.table import Table

from minicache.bench.cpu.measure import Row
from minicache.hardware import describe


def table(rows: Sequence[Row], model: str) -> Table:
    """One line a row. Times are each side's fastest repeat; the ratio is the median over pairs."""
    made = Table(title=f"{model} on {describe(torch.device('cpu'))}", title_justify="left")
    for name in ("", "dtype"):
        made.add_column(name)
    for name in ("ours", "transformers", "floor", "unit", "ratio or value", "bar"):
        made.add_column(name, justify="right")
    for row in rows:
        style = "" if row.good else "red"
        made.add_row(row.what, row.dtype, *_numbers(row), _bar(row), style=style)
    return made


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
