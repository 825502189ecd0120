"""A trace as JSON: one list a column, so that a file is small and its numbers survive exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isnan, nan
from typing import Any

from minicache.trace.table import Table

Tables = Mapping[str, Table[Any]]

FORMAT = "minicache-trace"
VERSION = 1


def write(source: str, page_size: int, tables: Tables) -> str:
    """A whole trace in one line of JSON. Undefined times and numbers are null."""
    head = {"format": FORMAT, "version": VERSION, "source": source, "page_size": page_size}
    columns = {name: _columns(table) for name, table in tables.items()}
    return json.dumps(head | columns, separators=(",", ":"), allow_nan=False)


def read(text: str) -> dict[str, Any]:
    """What `write` wrote, head checked. Raises `ValueError` in a sentence when it is no trace."""
    data = json.loads(text)
    _check_head(data)
    return data


def fill(tables: Tables, data: Mapping[str, Any]) -> None:
    """Append the columns of `data` to empty tables. Raises `ValueError` when they do not fit."""
    for name, table in tables.items():
        _fill(table, name, data.get(name))


def _columns(table: Table[Any]) -> dict[str, list[Any]]:
    return {name: _write(table, name, kind) for name, kind in table.kinds.items()}


def _write(table: Table[Any], name: str, kind: str) -> list[Any]:
    if kind == "text":
        return table.texts(name)
    values = table.column(name).tolist()
    if kind == "float?":
        return [None if isnan(value) else value for value in values]
    if kind == "int?":
        return [None if value < 0 else value for value in values]
    return values


_MISSING: dict[str, float] = {"float?": nan, "int?": -1}


def _read(values: list[Any], kind: str) -> list[Any]:
    missing = _MISSING.get(kind)
    if missing is None:
        return values
    return [missing if value is None else value for value in values]


def _fill(table: Table[Any], name: str, data: Any) -> None:
    if not isinstance(data, dict) or set(data) != set(table.kinds):
        raise ValueError(
            f"The trace's table {name!r} should have the columns {', '.join(table.kinds)}; "
            "write the file again with Trace.to_json."
        )
    lengths = {len(values) for values in data.values()}
    if len(lengths) != 1:
        raise ValueError(
            f"The columns of the trace's table {name!r} have {len(lengths)} different lengths; "
            "the file is damaged, so take another copy."
        )
    table.extend(*(_read(data[column], kind) for column, kind in table.kinds.items()))


def _check_head(data: Any) -> None:
    kind = data.get("format") if isinstance(data, dict) else None
    if kind != FORMAT:
        raise ValueError(f"This is no trace: its format is {kind!r}, not {FORMAT!r}.")
    if data.get("version") != VERSION:
        raise ValueError(
            f"The trace has version {data.get('version')!r}, but this minicache reads version "
            f"{VERSION}; open it with the minicache that wrote it."
        )
