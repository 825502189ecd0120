"""A table kept as columns: a row costs a few bytes, and is a NamedTuple while you look at it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isnan
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Row = TypeVar("Row")
Values: TypeAlias = Iterable[Any]
_Storage: TypeAlias = "array[Any] | list[Any]"


def _same(value: Any) -> Any:
    return value


def _time_or_none(value: float) -> float | None:
    return None if isnan(value) else value


def _number_or_none(value: int) -> int | None:
    return None if value < 0 else value


_KINDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "int": ("i", _same),
    "long": ("q", _same),
    "float": ("d", _same),
    "bool": ("b", bool),
    "float?": ("d", _time_or_none),
    "int?": ("i", _number_or_none),
    "text": ("", _same),
}
"""Kind of a column → (typecode of its array, or "" for a list; how a stored value is seen)."""


class Table(Sequence[Row], Generic[Row]):
    """Rows of `record`, stored as one typed array a column.

    Kinds: `int` and `int?` take 4 bytes a row, `long`, `float` and `float?` 8, `bool` 1, `text` a
    reference. A `?` column stores NaN or a negative number where its view says None.
    """

    __slots__ = ("_columns", "_make", "_views", "kinds")

    def __init__(self, make: Callable[..., Row], kinds: Mapping[str, str]) -> None:
        """`make(*values)` builds the view of a row; `kinds` names the columns in that order."""
        self.kinds = dict(kinds)
        self._make = make
        self._columns: dict[str, _Storage] = {
            name: array(code) if (code := _KINDS[kind][0]) else [] for name, kind in kinds.items()
        }
        self._views = tuple(_KINDS[kind][1] for kind in kinds.values())

    def append(self, *values: Any) -> None:
        """Add one row: a value a column, in order."""
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)

    def extend(self, *columns: Values) -> None:
        """Add many rows: a sequence of equal length a column, in order."""
        for column, values in zip(self._columns.values(), columns, strict=True):
            column.extend(values)

    def set(self, row: int, name: str, value: Any) -> None:
        """Change one stored value (NaN, or -1, is how a `?` column stores None)."""
        self._columns[name][row] = value

    def column(self, name: str) -> NDArray[Any]:
        """A copy of a numeric column as it is now: int32, int64, int8 or float64."""
        return np.array(self._columns[name])

    def texts(self, name: str) -> list[str]:
        """A copy of a text column."""
        return list(self._columns[name])

    @property
    def num_bytes(self) -> int:
        """Bytes that the numeric columns take, spare room included."""
        arrays = (column for column in self._columns.values() if isinstance(column, array))
        return sum(column.__sizeof__() for column in arrays)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __iter__(self) -> Iterator[Row]:
        for values in zip(*self._columns.values(), strict=True):
            yield self._view(values)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        """One row, or a list of rows, as views."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._view(tuple(column[index] for column in self._columns.values()))

    def _view(self, values: tuple[Any, ...]) -> Row:
        return self._make(*(see(value) for see, value in zip(self._views, values, strict=True)))
