"""What callers hand in, looked at once: a wrong kind of value ends in a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from numbers import Real
from operator import index
from typing import cast

PRIORITIES = 2**31
"""Priorities are kept in 32 bits, by the trace."""


def check_whole(name: str, value: object) -> None:
    """Raise `ValueError` unless `value` is a whole number, of whatever library."""
    if not is_whole(value):
        raise ValueError(f"{name} is {value!r}, but it must be a whole number.")


def check_number(name: str, value: object) -> None:
    """Raise `ValueError` unless `value` is a real number; NaN is one."""
    if not isinstance(value, Real):
        raise ValueError(f"{name} is {value!r}, but it must be a number.")


def check_strings(name: str, value: object) -> None:
    """Raise `ValueError` unless `value` is a tuple or list of strings; one string is not."""
    strings: list[object] = list(value) if isinstance(value, (tuple, list)) else [None]
    if not all(isinstance(text, str) for text in strings):
        raise ValueError(f"{name} is {value!r}, but it must be a tuple of strings, as in ('END',).")


def check_labels(priority: object, arrival: object, salt: object) -> None:
    """Raise `ValueError` for what no queue, trace or prefix cache can keep: it would stop them."""
    if not is_whole(priority) or not -PRIORITIES <= index(cast(int, priority)) < PRIORITIES:
        raise ValueError(
            f"priority is {priority!r}, but it must be a whole number in "
            f"[{-PRIORITIES}, {PRIORITIES}); a lower one is served first."
        )
    if not isinstance(arrival, Real) or not isfinite(arrival):
        raise ValueError(f"arrival is {arrival!r}, but it must be a time in seconds.")
    if not isinstance(salt, str):
        raise ValueError(f"salt is {salt!r}, but it must be a string.")


def token_ids(prompt: object) -> list[int]:
    """The ids of `prompt` as plain integers, also of arrays. Raises `ValueError` in a sentence."""
    if isinstance(prompt, (str, bytes, bytearray)) or not isinstance(prompt, Iterable):
        raise ValueError(
            f"The prompt is {_shown(prompt)}, but it must be a sequence of token ids; "
            "text is a str, and goes through the model's tokenizer."
        )
    given = cast(list[int], list(cast(Iterable[object], prompt)))
    try:
        return [index(token) for token in given]
    except (TypeError, ValueError):
        place = next(i for i, token in enumerate(given) if not is_whole(token))
        raise ValueError(
            f"The prompt holds {_shown(given[place])} at place {place}, but token ids are whole "
            "numbers; a sequence holds the ids of one prompt."
        ) from None


def is_whole(value: object) -> bool:
    """Whether `value` is a whole number, of whatever library."""
    try:
        index(value)  # pyright: ignore[reportArgumentType]  # whether it can be one is the question
    except (TypeError, ValueError):
        return False
    return True


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text[:60]}… ({type(value).__name__})" if len(text) > 60 else text
