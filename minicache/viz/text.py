"""How wide a text will be, before any browser has seen it.

The pictures use the reader's interface font, which we cannot measure. DejaVu Sans is wider than the
usual ones (Segoe UI, Roboto, San Francisco), so a text that fits by its widths fits by theirs.
"""

from __future__ import annotations

_REGULAR = """
    32 40 46 84 64 95 78 27 39 39 50 84 32 36 32 34 64 64 64 64 64 64 64 64 64 64 34 34 84 84 84
    53 100 68 69 70 77 63 58 77 75 29 29 66 56 86 75 79 60 79 69 63 61 73 68 99 69 61 69 39 34
    39 84 50 50 61 63 55 63 62 35 63 63 28 28 58 28 97 63 61 63 63 41 52 39 63 59 82 59 59 52 64
    34 64 84  100 84 50 84 32 52 52 64 32
"""
_BOLD = """
    35 46 52 84 70 100 87 31 46 46 52 84 38 42 38 37 70 70 70 70 70 70 70 70 70 70 40 40 84 84
    84 58 100 77 76 73 83 68 68 82 84 37 37 77 64 100 84 85 73 85 77 72 68 81 77 110 77 72 73 46
    37 46 84 50 50 67 72 59 72 68 44 72 71 34 34 67 34 104 71 69 72 72 49 60 48 71 65 92 65 65
    58 71 37 71 84  100 84 50 84 38 66 66 74 38
"""
"""Advance widths of space to tilde, then of a few others, in hundredths of the font size."""

_CHARACTERS = "".join(map(chr, range(32, 127))) + "…−–×’“”µ·"
_UNKNOWN = 110
"""Any other character: wider than nearly all of them."""


def _table(widths: str) -> dict[str, int]:
    return dict(zip(_CHARACTERS, map(int, widths.split()), strict=True))


_TABLES = {False: _table(_REGULAR), True: _table(_BOLD)}


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Pixels that `text` takes at a font size of `size` pixels, at most."""
    table = _TABLES[bold]
    return sum(table.get(character, _UNKNOWN) for character in text) * size / 100


def fit(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """`text`, cut with an ellipsis where it is wider than `room` pixels."""
    if width(text, size, bold=bold) <= room:
        return text
    kept = text
    while kept and width(kept.rstrip() + "…", size, bold=bold) > room:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def wrap(text: str, room: float, size: float, *, bold: bool = False) -> list[str]:
    """`text` in lines of at most `room` pixels, broken at spaces; a longer word is cut."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if line and width(longer, size, bold=bold) > room:
            lines.append(line)
            longer = word
        line = fit(longer, room, size, bold=bold)
    return [*lines, line] if line else lines
