"""The notebook files: write what is new, and say what is out of step."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat.notebooknode import NotebookNode

from minicache.lab.notebooks.run import execute, without_outputs
from minicache.lab.notebooks.source import notebook, read_cells


class Pair(NamedTuple):
    """The three files of a lesson."""

    source: Path
    solution: Path
    lesson: Path


def pairs(root: Path) -> list[Pair]:
    """Every lesson under `root`, by number."""
    sources = sorted((root / "solutions").glob("[0-9][0-9]_*.py"))
    return [Pair(p, p.with_suffix(".ipynb"), root / "lessons" / f"{p.stem}.ipynb") for p in sources]


def as_text(notebook: NotebookNode) -> str:
    """The notebook's file, checked against the notebook schema."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook, indent=1, sort_keys=True) + "\n"


def build(pair: Pair, run: str = "changed") -> list[str]:
    """Write both notebooks of a lesson; returns a line for each file written.

    `run`: "always" executes the solution, "changed" only if its cells differ from the file's (the
    stored outputs are kept otherwise), "never" keeps outputs whose cells are unchanged or has none.
    """
    cells = read_cells(pair.source)
    written: list[str] = []
    if _write(pair.lesson, as_text(notebook(cells, blank=True))):
        written.append(f"{pair.lesson.name}: lesson written")
    fresh = notebook(cells, blank=False)
    same = _stored_text(pair.solution) == as_text(fresh)
    if run == "always" or (run == "changed" and not same):
        fresh = execute(fresh, pair.source.parent)
    if (run == "always" or not same) and _write(pair.solution, as_text(fresh)):
        written.append(f"{pair.solution.name}: solution {'written' if run == 'never' else 'run'}")
    return written


def _stored_text(path: Path) -> str:
    """The stored notebook with its outputs taken away, or nothing."""
    if not path.exists():
        return ""
    return as_text(without_outputs(nbformat.read(path, as_version=4)))


def _write(path: Path, text: str) -> bool:
    if path.exists() and path.read_text("utf-8") == text:
        return False
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    return True


def problems(root: Path) -> list[str]:
    """What is out of step under `root`, a sentence each; empty when all is well."""
    found: list[str] = []
    for pair in pairs(root):
        cells = read_cells(pair.source)
        found += _lesson_problems(pair, as_text(notebook(cells, blank=True)))
        found += _solution_problems(pair, as_text(notebook(cells, blank=False)))
    known = {pair.source.stem for pair in pairs(root)}
    for folder in ("solutions", "lessons"):
        for path in sorted((root / folder).glob("*.ipynb")):
            if path.stem not in known:
                found.append(f"{folder}/{path.name} has no source in solutions/; delete it.")
    return found


def _lesson_problems(pair: Pair, expected: str) -> list[str]:
    if not pair.lesson.exists() or pair.lesson.read_text("utf-8") != expected:
        return [f"lessons/{pair.lesson.name} is not what {pair.source.name} makes."]
    return []


def _solution_problems(pair: Pair, expected: str) -> list[str]:
    if _stored_text(pair.solution) != expected:
        return [f"solutions/{pair.solution.name} is not what {pair.source.name} makes."]
    stored = nbformat.read(pair.solution, as_version=4)
    counts = [cell.execution_count for cell in stored.cells if cell.cell_type == "code"]
    if counts != list(range(1, len(counts) + 1)):
        return [f"solutions/{pair.solution.name} was not run from top to bottom."]
    return []
