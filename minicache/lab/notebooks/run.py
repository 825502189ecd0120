"""Run a notebook, and keep of its outputs what reads well without a kernel."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat.notebooknode import NotebookNode

from minicache.lab.notebooks.source import KERNEL

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def execute(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run every cell in a fresh kernel whose working directory is `folder`.

    The learner's library is an empty temporary folder. Raises nbclient's `CellExecutionError` with
    the traceback where a cell fails.
    """
    with tempfile.TemporaryDirectory() as library:
        client = NotebookClient(
            notebook,
            timeout=600,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            record_timing=False,
            store_widget_state=False,
        )
        client.execute(env={**os.environ, "MINICACHE_MYCACHE": str(Path(library, "mycache"))})
    return tidy_outputs(notebook)


def tidy_outputs(notebook: NotebookNode) -> NotebookNode:
    """Make outputs readable with no kernel: no live widget views, no machine's Python version.

    A widget's static twin (SVG and a line of text) stays. Streams that came in pieces are joined.
    """
    notebook.metadata = nbformat.from_dict(KERNEL)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET_VIEW, None)
        if cell.cell_type == "code":
            cell.outputs = _joined_streams(cell.outputs)
    return notebook


def _joined_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    joined: list[NotebookNode] = []
    for output in outputs:
        last: Any = joined[-1] if joined else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last["text"] += output.text
        else:
            joined.append(output)
    return joined


def without_outputs(notebook: NotebookNode) -> NotebookNode:
    """A copy with no outputs and no execution counts: what both runs must agree on."""
    copy: NotebookNode = nbformat.from_dict(notebook)
    for cell in copy.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return copy
