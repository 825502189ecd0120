"""The long document: the source of this engine, which is there wherever the engine is."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

CHAPTERS = ("request.py", "plan.py", "protocols.py", "core.py", "engine.py")


def text() -> str:
    """The chapters, each under its name, in the order in which one would read them."""
    package = files("minicache")
    return "\n".join(
        f"=== {name} ===\n{(package / name).read_text(encoding='utf-8')}" for name in CHAPTERS
    )


def cut(document: str, limit: int, count: Callable[[str], int]) -> str:
    """As many whole lines of `document` as have at most `limit` tokens by `count(text)`."""
    lines = document.splitlines(keepends=True)
    few, many = 0, len(lines)
    while few < many:
        middle = (few + many + 1) // 2
        if count("".join(lines[:middle])) <= limit:
            few = middle
        else:
            many = middle - 1
    return "".join(lines[:few])
