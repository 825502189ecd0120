"""Numbers as people read them: `3.20 s`, `65,536`, `−95 %`, `three chats`."""

from __future__ import annotations

_WORDS = (
    "no", "one", "two", "three", "four", "five", "six",
    "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip


def duration(seconds: float, digits: int = 3) -> str:
    """A time span with its unit and about `digits` significant digits."""
    for limit, scale, unit in ((0.9995, 1.0, "s"), (0.9995e-3, 1e3, "ms"), (0.0, 1e6, "µs")):
        if abs(seconds) >= limit:
            return f"{_digits(seconds * scale, digits)} {unit}"
    raise ValueError(f"{seconds} is no time span; give a number of seconds.")


def _digits(value: float, digits: int) -> str:
    whole = len(str(int(abs(value))))
    return f"{value:,.{max(0, digits - whole)}f}"


def count(number: float) -> str:
    """A whole number with thousands separated."""
    return f"{number:,.0f}"


def change(before: float, after: float) -> str:
    """How much `after` differs: `−95 %`, `+5 %`, `same`, or `22×` from three times on."""
    if before <= 0 or round(100 * (after / before - 1)) == 0:
        return "same" if before == after or before > 0 else ""
    if after >= 3 * before:
        return f"{_digits(after / before, 2)}×"
    percent = 100 * (after / before - 1)
    return f"{'+' if percent > 0 else '−'}{abs(percent):.0f} %"


def number_of(number: int, noun: str) -> str:
    """`three chats`, `one chat`, `14 chats`."""
    word = _WORDS[number] if number < len(_WORDS) else count(number)
    return f"{word} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """The plural of a regular English noun."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def capital(sentence: str) -> str:
    """The sentence with its first letter large."""
    return sentence[:1].upper() + sentence[1:]
