"""From a py:percent source to the cells of the two notebooks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import jupytext
import nbformat
from nbformat.notebooknode import NotebookNode

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
CHECK_OUTPUT = "# NBVAL_CHECK_OUTPUT"
CHECK_OUTPUT_TAG = "nbval-check-output"
GUESS = re.compile(r"\bguess=[-+\w.]+")
KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class Cell(NamedTuple):
    """One cell of a source: `kind` is "markdown" or "code"."""

    kind: str
    source: str
    tags: tuple[str, ...]


class SourceError(ValueError):
    """A source that cannot become notebooks. The message names file, cell and remedy."""


def read_cells(path: Path) -> list[Cell]:
    """The cells of a py:percent file. Raises `SourceError` where the markers do not pair."""
    notebook = jupytext.read(path, fmt="py:percent")
    cells = [_read_cell(cell) for cell in notebook.cells]
    for number, cell in enumerate(cells):
        _check_markers(cell.source, f"{path.name}, cell {number}")
    return cells


def _read_cell(cell: NotebookNode) -> Cell:
    tags: tuple[str, ...] = tuple(cell.metadata.get("tags", ()))
    lines: list[str] = cell.source.splitlines()
    if CHECK_OUTPUT in lines:
        lines.remove(CHECK_OUTPUT)
        tags = (*tags, CHECK_OUTPUT_TAG)
    return Cell(cell.cell_type, "\n".join(lines).strip("\n"), tags)


def _check_markers(source: str, where: str) -> None:
    inside = False
    for line in source.splitlines():
        text = line.strip()
        if text.startswith((BEGIN, END)):
            if text.startswith(BEGIN) == inside:
                raise SourceError(f"{where}: {text!r} has no partner; pair '{BEGIN}' with '{END}'.")
            if text.startswith(BEGIN) and not text.removeprefix(BEGIN).strip():
                raise SourceError(f"{where}: '{BEGIN}' needs a hint: it becomes the blank's text.")
            inside = not inside
    if inside:
        raise SourceError(f"{where}: '{BEGIN}' is never closed; add '{END}'.")


def solved(source: str) -> str:
    """The cell as the solution shows it: the markers are gone, what was between them stays."""
    kept = [line for line in source.splitlines() if not line.strip().startswith((BEGIN, END))]
    return "\n".join(kept)


def blanked(source: str) -> str:
    """The cell as the learner gets it: each region is one `raise`, each guess is open."""
    return GUESS.sub("guess=...", "\n".join(_without_solutions(source.splitlines())))


def _without_solutions(lines: Iterable[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        text = line.strip()
        if text.startswith(BEGIN):
            indent = line[: len(line) - len(line.lstrip())]
            hint = text.removeprefix(BEGIN).strip().replace('"', "'")
            yield f'{indent}raise NotImplementedError("{hint}")'
        if text.startswith((BEGIN, END)):
            inside = not inside
        elif not inside:
            yield line


def notebook(cells: Iterable[Cell], *, blank: bool) -> NotebookNode:
    """A notebook without outputs: the learner's when `blank`, else the complete one."""
    change = blanked if blank else solved
    result = nbformat.v4.new_notebook(metadata=KERNEL)
    seen: dict[str, int] = {}
    for cell in cells:
        source = change(cell.source) if cell.kind == "code" else cell.source
        result.cells.append(_new_cell(cell, source, _cell_id(cell.kind, source, seen), blank))
    return result


def _new_cell(cell: Cell, source: str, cell_id: str, blank: bool) -> NotebookNode:
    tags = [tag for tag in cell.tags if not (blank and tag == CHECK_OUTPUT_TAG)]
    metadata = {"tags": tags} if tags else {}
    new = nbformat.v4.new_code_cell if cell.kind == "code" else nbformat.v4.new_markdown_cell
    return new(source, id=cell_id, metadata=metadata)


def _cell_id(kind: str, source: str, seen: dict[str, int]) -> str:
    """The first 8 hex digits of the cell's sha256; a repeated cell gets -2, -3, …"""
    digest = hashlib.sha256((kind + source).encode()).hexdigest()[:8]
    seen[digest] = seen.get(digest, 0) + 1
    return digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
