"""Show something to a reader: HTML in a notebook, text in a terminal, both in a notebook's file."""

from __future__ import annotations

import html
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shown:
    """A piece of output with its plain-text twin."""

    html: str
    text: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What Jupyter shows and stores."""
        return {"text/html": self.html, "text/plain": self.text}

    def __repr__(self) -> str:
        """The text, for a plain Python prompt."""
        return self.text


def in_notebook() -> bool:
    """Whether this code runs in IPython or a notebook, and so can display."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def show(piece: Shown) -> None:
    """Display in a notebook, print in a terminal."""
    if in_notebook():
        from IPython.display import display

        display(piece)
    else:
        print(piece.text)


def say(sentence: str) -> None:
    """One line of plain text, in a notebook only: a library file that is imported stays silent."""
    if in_notebook():
        print(sentence)


STYLE = """\
font-family: var(--jp-ui-font-family, sans-serif); font-size: 13px; line-height: 1.45;
color: var(--jp-ui-font-color1, #222); text-align: left;"""
LINE = "1px solid var(--jp-border-color2, #bbb)"
GOOD, BAD, MUTED = "#009E73", "#D55E00", "var(--jp-ui-font-color2, #666)"


def escape(text: str) -> str:
    """Text as HTML."""
    return html.escape(text, quote=True)


def cell(content: str, style: str = "") -> str:
    """A table cell that is left-aligned in every viewer."""
    return f'<td style="text-align: left; padding: 2px 14px 2px 0; {style}">{content}</td>'


def table(rows: list[str], caption: str) -> str:
    """A table with an accessible name; `rows` are strings of cells."""
    body = "".join(f'<tr style="background: none;">{row}</tr>' for row in rows)
    return (
        f'<table aria-label="{escape(caption)}" style="border-collapse: collapse; margin: 4px 0; '
        f'{STYLE}"><tbody>{body}</tbody></table>'
    )


def preformatted(text: str) -> str:
    """Text whose columns must stay aligned."""
    style = "margin: 0; background: none; color: inherit; white-space: pre-wrap; font-size: 12.5px;"
    return f'<pre style="{style}">{escape(text)}</pre>'
