"""`minicache progress`: which exercises of the course are done."""

from __future__ import annotations


def progress() -> None:
    """Show which exercises of the course you have solved."""
    from minicache.lab import progress as show

    print(show())
