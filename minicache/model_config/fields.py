"""Reading values of an untyped JSON object: each checked, each mistake told in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from minicache.model_config.config import ModelError


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object of the model called `name`; null counts as absent."""

    raw: Mapping[str, Any]
    name: str

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number that is at least `least`. Raises `ModelError`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self._wrong(key, value, f"a whole number of at least {least}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number. Raises `ModelError`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(key, value, "a positive number")
        if not 0 < value < math.inf:
            self._wrong(key, value, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false. Raises `ModelError`."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            self._wrong(key, value, "true or false")
        return value

    def section(self, key: str) -> Mapping[str, Any]:
        """A nested object, empty where absent. Raises `ModelError`."""
        value = self.raw.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._wrong(key, value, "an object")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """A token id, several, or none. Raises `ModelError`."""
        value = self.raw.get(key)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(token, int) and token >= 0 for token in ids):
            self._wrong(key, value, "a token id or a list of them")
        return tuple(ids)

    def refuse(self, key: str, value: object, reason: str) -> NoReturn:
        """Raise `ModelError`: the value is understood, but not supported."""
        raise ModelError(f"{self.name} has {key} {value!r}, which is not supported: {reason}.")

    def _value(self, key: str, default: Any) -> Any:
        value = self.raw.get(key)
        if value is None:
            value = default
        if value is None:
            raise ModelError(f"The config of {self.name} has no {key}; fetch config.json again.")
        return value

    def _wrong(self, key: str, value: object, wanted: str) -> NoReturn:
        raise ModelError(f"The config of {self.name} has {key} {value!r}, but it must be {wanted}.")
