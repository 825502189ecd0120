"""Values of an untyped object (JSON, GGUF metadata), each checked, each mistake a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from minicache.model_config.config import ModelError


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of one object; null counts as absent. Every method raises `ModelError`."""

    raw: Mapping[str, Any]
    where: str
    """How messages call it, such as 'config.json of tiny-llama'."""

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number that is at least `least`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self._wrong(key, value, f"a whole number of at least {least}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self._value(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf:
            self._wrong(key, value, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            self._wrong(key, value, "true or false")
        return value

    def string(self, key: str, default: str | None = None) -> str:
        """A text."""
        value = self._value(key, default)
        if not isinstance(value, str):
            self._wrong(key, value, "a text")
        return value

    def strings(self, key: str) -> list[str]:
        """A list of texts."""
        value = self._value(key, None)
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            self._wrong(key, type(value).__name__, "a list of texts")
        return value

    def section(self, key: str) -> Mapping[str, Any]:
        """A nested object, empty where absent."""
        value = self._value(key, {})
        if not isinstance(value, Mapping):
            self._wrong(key, value, "an object")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """A token id, several, or none."""
        value = self._value(key, [])
        ids = value if isinstance(value, list) else [value]
        if not all(type(token) is int and token >= 0 for token in ids):
            self._wrong(key, value, "a token id or a list of them")
        return tuple(ids)

    def refuse(self, key: str, reason: str, value: object = None) -> NoReturn:
        """The value is understood, but not supported, and `reason` says what is."""
        value = self.raw.get(key) if value is None else value
        raise ModelError(f"{self.where} has {key} {value!r}, which is not supported: {reason}.")

    def _value(self, key: str, default: Any) -> Any:
        value = self.raw.get(key)
        value = default if value is None else value
        if value is None:
            raise ModelError(f"{self.where} has no {key}; fetch the file again.")
        return value

    def _wrong(self, key: str, value: object, wanted: str) -> NoReturn:
        raise ModelError(f"{self.where} has {key} {value!r}, but it must be {wanted}.")
