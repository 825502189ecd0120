"""A model may say anything, escape sequences too: what a terminal would obey is replaced."""

from __future__ import annotations

import unicodedata

_KEPT = "\n\t"


def printable(text: str) -> str:
    """`text` with U+FFFD for every control character but newline and tab."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) == "Cc" and c not in _KEPT else c
        for c in text
    )


def one_line(text: str) -> str:
    """`text` with single spaces for all white space, and nothing that a terminal would obey."""
    return " ".join(printable(text).split())
